"""Instances that answer in this process, each at the address of its pod."""

import json
from types import TracebackType
from typing import Self
from uuid import UUID

from aiohttp import web

from paddock.runtimes.runtime import Start
from tests.cluster import behaviours
from tests.cluster.admin import Json
from tests.cluster.kubelet import Kubelet
from tests.instances.fake_runtime import Behaviour, FakeInstance


class PodInstance(FakeInstance):
    async def serve_at(self, address: str, port: int) -> None:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, port).start()


class Pretending:
    """`run` is a behaviour of the tests' kubelet. `behaviour` is what the instances that are started from now on do."""

    def __init__(self) -> None:
        self.behaviour = Behaviour()
        self.instances: list[PodInstance] = []

    async def run(self, kubelet: Kubelet, pod: Json) -> None:
        told = json.loads(pod["spec"]["containers"][0]["args"][1])
        start = Start(
            name=told["name"],
            instance=UUID(told["id"]),
            generation=UUID(told["generation"]),
            wrapper_type=told["wrapper_type"],
            memory_bytes=told["memory_bytes"],
            cpu=told["cpu"],
            disk_bytes=told["disk_bytes"],
            token_sha256=told["token_sha256"],
            owner="",
        )
        instance, address = PodInstance(start, self.behaviour), kubelet.new_address()
        await instance.serve_at(address, told["port"])
        self.instances.append(instance)
        await kubelet.write(pod, behaviours.running(pod, address))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        for instance in self.instances:
            await instance.close()
