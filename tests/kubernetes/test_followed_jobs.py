"""Jobs that a watch tells of: nothing is asked for while nothing changes, and nothing ends that the API server did not say."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from paddock.runtimes.kubernetes import jobs as jobs_of_steps
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.following import JobsWatch
from tests.cluster import behaviours
from tests.cluster.admin import Admin, pods
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.cluster.server import Cluster
from tests.kubernetes.attempts import MINE, Work
from tests.playing import until


class Watched(Work):
    watch: JobsWatch
    # How often the turn looked at what the watch has.
    looks = 0

    @property
    def known(self) -> bool:
        """Whether the watch has told that its container runs."""
        found = self.link.saved.get("container", {})
        return bool(found.get("started")) and self.watch.job(found["name"]) is not None

    async def look_again(self, times: int) -> None:
        before = self.looks
        await until(lambda: self.looks >= before + times)


@pytest.fixture
async def work(
    namespace: str, cluster: Cluster, faults: Faults, nodes: Nodes, kubelet: Kubelet, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Watched]:
    """It goes through the proxy, and its container runs until it is told to end."""
    monkeypatch.setattr(jobs_of_steps, "WATCHED_PAUSE", 0.01)
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.pretend_to_run
    access = find_access({"KUBECONFIG": str(cluster.kubeconfig)})
    client = Kubernetes(dataclasses.replace(access, server=faults.url))
    made = Watched(namespace, client)
    made.cluster.watch = made.watch = JobsWatch(client, namespace, MINE)
    told = made.watch.job

    def counted(name: str) -> Any:
        made.looks += 1
        return told(name)

    monkeypatch.setattr(made.watch, "job", counted)
    async with made.watch.running():
        await until(lambda: made.watch.synced)
        yield made
    await client.close()


@asynccontextmanager
async def running(work: Watched) -> AsyncIterator["asyncio.Task[str]"]:
    task = asyncio.create_task(work.run())
    try:
        await until(lambda: work.known or task.done())
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])


async def end_container(admin: Admin, kubelet: Kubelet, namespace: str) -> None:
    [pod] = await admin.list(pods(namespace))
    await kubelet.apply(pod["metadata"]["name"], behaviours.exits(0))


def asked(faults: Faults) -> Sequence[str]:
    """What was asked for besides the watches, each as its method and the last word of its path."""
    return [f"{one.method} {one.path.split('/')[-1]}" for one in faults.requests if not one.is_watch]


async def test_nothing_is_asked_for_until_it_ends(
    work: Watched, faults: Faults, admin: Admin, kubelet: Kubelet, namespace: str
) -> None:
    async with running(work) as run:
        await work.look_again(5)
        before = len(asked(faults))
        await work.look_again(50)
        assert asked(faults)[before:] == []
        await end_container(admin, kubelet, namespace)
        async with asyncio.timeout(60):
            await run
    name = work.name
    assert asked(faults)[before:] == [f"GET {name}", "GET pods", "GET log", f"DELETE {name}"]


async def test_an_end_that_only_the_watch_tells_of_is_none(
    work: Watched, faults: Faults, admin: Admin, kubelet: Kubelet, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = work.watch.job
    async with running(work) as run:

        def failed(name: str) -> Any:
            found = told(name)
            if found is None:
                return None
            job, its_pods = found
            return job | {"status": {"conditions": [{"type": "Failed", "status": "True", "reason": "x"}]}}, its_pods

        before = len(asked(faults))
        with monkeypatch.context() as lying:
            lying.setattr(work.watch, "job", failed)
            await until(lambda: asked(faults)[before:].count(f"GET {work.name}") >= 3 or run.done())
        assert not run.done()
        await end_container(admin, kubelet, namespace)
        async with asyncio.timeout(60):
            await run


@pytest.mark.parametrize("broken", ["too old", "for good"])
async def test_its_end_is_seen_also_when_the_watch_breaks(
    work: Watched, faults: Faults, admin: Admin, kubelet: Kubelet, namespace: str, broken: str
) -> None:
    async with running(work) as run:
        if broken == "too old":
            expired = faults.expire_watches(2)
        else:
            expired = faults.refuse(500, times=None, when=lambda request: request.is_watch)
        faults.cut_watches()
        await until(lambda: expired.met >= 2)
        await end_container(admin, kubelet, namespace)
        async with asyncio.timeout(60):
            await run
