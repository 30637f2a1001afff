"""Instances come, go and are taken away at random, on three replicas, while the line to the API server breaks: at the end the rows
and the pods are the same."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.instances import beginning, running_on
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.cluster import behaviours
from tests.cluster.admin import Admin, pods
from tests.cluster.faults import Fault, Faults
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.instances.world import create, ready_snapshot, until, working
from tests.kubernetes.pods.pretending import Pretending

LIVES, STEPS_OF_EACH = 20, 2


@pytest.fixture
async def replicas(
    core: Core,
    config: Config,
    settings: CoreSettings,
    dsn: str,
    runtime: KubernetesRuntime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[None]:
    """The one that is asked, and two more. Each has its own pools, its own line to the API server, and its own watch."""
    async with AsyncExitStack() as stack:
        made = [(core, config)]
        for name in ("second", "third"):
            another = await stack.enter_async_context(
                open_core(dsn, all_kinds(config), settings, metrics=Metrics(CollectorRegistry()))
            )
            its_config = config.model_copy(update={"data": tmp_path / name})
            its_runtime = KubernetesRuntime(
                Kubernetes(runtime.client.access),
                namespace=runtime.namespace,
                image="paddock.test/paddock:1",
                settings=PodSettings(),
                installation=runtime.installation,
            )
            monkeypatch.setitem(running_on.OPENED, ("kubernetes", its_config.data), its_runtime)
            made.append((another, its_config))
        for one in made:
            await stack.enter_async_context(beginning.alongside(*one))
        for one in made:
            await stack.enter_async_context(working(*one))
        yield


@pytest.mark.usefixtures("replicas")
@pytest.mark.parametrize("lives", [LIVES, pytest.param(200, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
async def test_rows_and_pods_agree_at_the_end(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    root: httpx2.AsyncClient,
    pretending: Pretending,
    kubelet: Kubelet,
    faults: Faults,
    nodes: Nodes,
    admin: Admin,
    namespace: str,
    lives: int,
) -> None:
    await nodes.add(memory_bytes=400 << 30, cpu=2 * lives, pods=2 * lives)
    dice = random.Random(18)
    limits = {"concurrency.per_analyst": lives, "concurrency.cluster_total": lives}
    many = {"concurrency.per_analyst_memory_gb": 10_000, "concurrency.cluster_memory_gb": 10_000}
    assert (await root.put("/api/ops/config", json={"settings": limits | many})).status_code == 200
    snapshot = await ready_snapshot(core, config)
    made = [await create(ada, snapshot_id=str(snapshot.id), memory_gb=1) for _ in range(lives)]
    disturbing = Disturbing(dice, faults, kubelet, admin, namespace, ada, made)
    for _ in range(STEPS_OF_EACH * lives):
        await disturbing.once()
    for one in dice.sample(made, lives // 2):
        await delete(ada, one["id"])

    async def agree() -> bool:
        rows = await core.db.pool("durable").fetch("SELECT status, pod_name FROM instances")
        found = {pod["metadata"]["name"] for pod in await admin.list(pods(namespace))}
        settled = all(row["status"] in ("running", "failed") for row in rows)
        return settled and found == {row["pod_name"] for row in rows if row["status"] == "running"}

    # A busy machine brings a few lives to their end in a second.
    await until("rows and pods agree", agree, seconds=120 + 5 * lives)
    # A name is used again only where nobody could know of its pod: the answer to its create was lost, and then it was taken away.
    again = [name for name, n in Counter(one.start.name for one in pretending.instances).items() if n > 1]
    assert set(again) <= disturbing.taken
    assert len(again) <= sum(fault.met for fault in disturbing.lost)


async def delete(client: httpx2.AsyncClient, id: str) -> None:
    answer = await client.delete(f"/api/instances/{id}", timeout=60)
    assert answer.is_success or answer.status_code == 404, answer.text


@dataclass
class Disturbing:
    dice: random.Random
    faults: Faults
    kubelet: Kubelet
    admin: Admin
    namespace: str
    ada: httpx2.AsyncClient
    made: list[dict[str, str]]
    # Creates whose answer nobody got, and pods that were taken away.
    lost: list[Fault] = field(default_factory=list)
    taken: set[str] = field(default_factory=set)

    async def once(self) -> None:
        what = self.dice.choice(
            ["evict", "oom", "delete pod", "delete", "lost create", "lost delete", "500", "cut", "429", "reopen"]
        )
        found = [pod for pod in await self.admin.list(pods(self.namespace)) if pod["status"].get("phase") == "Running"]
        pod = self.dice.choice(found)["metadata"]["name"] if found else None
        one = self.dice.choice(self.made)["id"]
        if what == "evict" and pod is not None:
            self.taken.add(pod)
            await self.kubelet.apply(pod, behaviours.evicted())
        elif what == "oom" and pod is not None:
            await self.kubelet.apply(pod, behaviours.oom_killed)
        elif what == "delete pod" and pod is not None:
            self.taken.add(pod)
            await self.admin.delete(pods(self.namespace, pod))
        elif what == "delete":
            await delete(self.ada, one)
        elif what == "reopen":
            await self.ada.post(f"/api/instances/{one}/reopen")
        elif what == "lost create":
            self.lost.append(self.faults.lose_answer(method="POST", path="/pods"))
        elif what == "lost delete":
            self.faults.lose_answer(method="DELETE", path="/pods")
        elif what == "500":
            self.faults.refuse(500, path="/pods", times=2)
        elif what == "429":
            self.faults.refuse(429, method="POST", path="/pods", retry_after=1)
        elif what == "cut":
            self.faults.cut_watches()
        await asyncio.sleep(0)
