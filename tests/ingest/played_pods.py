"""The pod of a step as the tests' kubelet makes it: its three containers run one after the other, for real, in folders that
stand in for the pod's volumes. `step` runs its command here; its image is not looked at. `fetch` and `ship` are what their
command calls, in a thread: a process of ours for each costs most of a test's time. Where `ours_start` they are processes.
"""

import asyncio
import contextlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paddock.child_processes.spawning import import_path, inherited
from paddock.ingest import transferring
from tests.cluster.behaviours import Behaviour, now
from tests.cluster.kubelet import Kubelet

Json = dict[str, Any]


class StepPods:
    """A container that is `held` waits at its start until its gate opens. `end_of` says what a step becomes instead of being
    run, by its hook (None: a fetch); `lose_ship`: the node is gone once the outputs are sent. `secrets` are what the namespace's
    Secrets hold, by name and key."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.end_of: Callable[[str | None], Json | None] = lambda _: None
        self.held: set[str] = set()
        self.held_hooks = False
        self.lose_ship = False
        self.ours_start = False
        self.pods: list[Json] = []
        self.secrets: dict[tuple[str, str], str] = {}
        self._gates: dict[str, asyncio.Event] = {}

    @property
    def behaviour(self) -> Behaviour:
        return self._behave

    def gate(self, name: str) -> asyncio.Event:
        return self._gates.setdefault(name, asyncio.Event())

    async def _behave(self, kubelet: Kubelet, pod: Json) -> None:
        self.pods.append(pod)
        place = self.folder / pod["metadata"]["uid"]
        for name in ("in", "out", "tmp"):
            (place / name).mkdir(parents=True)
        states: dict[str, Json] = {}
        containers = [*pod["spec"].get("initContainers", []), *pod["spec"]["containers"]]
        for container in containers:
            name = container["name"]
            began = now()
            states[name] = {"running": {"startedAt": began}}
            await kubelet.write(pod, _status(pod, states, "Running" if name == "ship" else "Pending"))
            if name in self.held or (self.held_hooks and name == "step" and _hook_of(container) is not None):
                await self.gate(name).wait()
            end = self.end_of(_hook_of(container)) if name == "step" else None
            if end is not None and "waiting" in end:
                states[name] = end
                await kubelet.write(pod, _status(pod, states, "Pending"))
                return
            if end is None:
                end = {"exitCode": await self._run(container, place, kubelet.log_of(pod["metadata"]["name"]))}
            if name == "ship" and self.lose_ship:
                end = {"exitCode": 1}
            reason = "Completed" if end["exitCode"] == 0 else "Error"
            states[name] = {"terminated": {"reason": reason, "startedAt": began, "finishedAt": now(), **end}}
            if end["exitCode"]:
                await kubelet.write(pod, _status(pod, states, "Failed"))
                return
        await kubelet.write(pod, _status(pod, states, "Succeeded"))

    async def _run(self, container: Json, place: Path, log: Path) -> int:
        def here(text: str) -> str:
            return text.replace("/paddock/in", str(place / "in")).replace("/paddock/out", str(place / "out"))

        told = {variable["name"]: here(self._value(variable)) for variable in container.get("env", [])}
        told = {name: str(place / "tmp") if value == "/tmp" else value for name, value in told.items()}
        if container["name"] != "step" and not self.ours_start:
            return await asyncio.to_thread(transferring.main, container["args"][-1], told)
        command = container.get("command") or [sys.executable, "-P", "-m", "paddock.cli"]
        with log.open("ab") as output:
            process = await asyncio.create_subprocess_exec(
                *map(here, [*command, *container.get("args", [])]),
                env={**import_path(), **inherited("PATH", "LANG"), **told},
                cwd=place,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
        try:
            return await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    def _value(self, variable: Json) -> str:
        if "valueFrom" not in variable:
            return str(variable.get("value", ""))
        place = variable["valueFrom"]["secretKeyRef"]
        return self.secrets[place["name"], place["key"]]


def _hook_of(container: Json) -> str | None:
    return next((one["value"] for one in container["env"] if one["name"] == "PADDOCK_HOOK"), None)


def _status(pod: Json, states: dict[str, Json], phase: str) -> Json:
    def statuses(kind: str) -> list[Json]:
        return [
            {
                "name": one["name"],
                "image": one["image"],
                "imageID": "",
                "restartCount": 0,
                "ready": "terminated" in states.get(one["name"], {}),
                "state": states.get(one["name"], {"waiting": {"reason": "PodInitializing"}}),
            }
            for one in pod["spec"].get(kind, [])
        ]

    return {
        "phase": phase,
        "startTime": now(),
        "initContainerStatuses": statuses("initContainers"),
        "containerStatuses": statuses("containers"),
    }
