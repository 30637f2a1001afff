"""A node that stops beating: nobody confirms anything about its pods any more, and the instance runs elsewhere."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import httpx2
import pytest

from paddock.config import Config
from paddock.instances import running_on, talking
from paddock.jobs.core import Core
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from paddock.runtimes.runtime import Found
from tests.cluster import behaviours
from tests.cluster.admin import pods
from tests.cluster.kubelet import kubelet_of
from tests.cluster.losing import Losing
from tests.instances.world import ready_snapshot, running, until, until_status
from tests.kubernetes.pods.conftest import INSTALLATION
from tests.kubernetes.pods.pretending import Pretending
from tests.kubernetes.pods.test_ends import name_of, until_start
from tests.kubernetes.pods.test_starts import NAME, start_of

pytestmark = pytest.mark.slow


@pytest.fixture
async def client(losing: Losing) -> AsyncIterator[Kubernetes]:
    made = Kubernetes(find_access({"KUBECONFIG": str(losing.cluster.kubeconfig)}))
    yield made
    await made.close()


@pytest.fixture
def namespace(losing: Losing) -> str:
    return losing.namespace


@pytest.fixture
async def runtime(
    config: Config, client: Kubernetes, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesRuntime]:
    """For which each delete was asked for so long ago that nobody will confirm it any more."""
    made = KubernetesRuntime(
        client,
        namespace=namespace,
        image="x",
        settings=PodSettings(),
        installation=INSTALLATION,
        now=lambda: datetime.now(UTC) + timedelta(minutes=10),
    )
    monkeypatch.setitem(running_on.OPENED, ("kubernetes", config.data), made)
    yield made
    await talking.close_session()


@pytest.mark.usefixtures("at_work")
async def test_an_instance_whose_node_is_lost_runs_again_on_another_three_times_and_then_fails(
    losing: Losing, core: Core, config: Config, ada: httpx2.AsyncClient, tmp_path: Path
) -> None:
    snapshot = await ready_snapshot(core, config)
    first = await losing.add(memory_bytes=400 << 30, cpu=100)
    folder = tmp_path / "pods"
    folder.mkdir()
    async with kubelet_of(losing.admin, losing.namespace, folder) as kubelet, Pretending() as pretending:
        kubelet.choose = lambda _pod: pretending.run
        made = await running(core, ada, snapshot)
        second = await losing.add(memory_bytes=400 << 30, cpu=100)
        kubelet.keeps.add(await name_of(core, made["id"]))
        losing.lose(first)
        again = await until_start(core, made["id"], 2)
        assert again.status == "running"
        name = await name_of(core, made["id"])
        [pod] = await losing.admin.list(pods(losing.namespace))
        assert (pod["metadata"]["name"], pod["spec"]["nodeName"]) == (name, second)

        # As after two more.
        disruptions = "UPDATE instances SET disruptions = disruptions + 2 WHERE id = $1 RETURNING disruptions"
        assert await core.db.pool("durable").fetchval(disruptions, UUID(made["id"])) == 3
        kubelet.keeps.add(name)
        losing.lose(second)
        failed = await until_status(core, made["id"], "failed")
        assert failed.generation_number == 2
        assert failed.error is not None
        assert failed.error["diagnosis"]["category"] == "node_lost"
        assert "started again 3 times" in failed.error["message"]


async def test_a_pod_of_a_lost_node_counts_as_taken_away_and_is_forced_away_before_the_next(
    losing: Losing, client: Kubernetes, tmp_path: Path
) -> None:
    late = timedelta()
    runtime = KubernetesRuntime(
        client,
        namespace=losing.namespace,
        image="x",
        settings=PodSettings(),
        installation="the-tests",
        now=lambda: datetime.now(UTC) + late,
    )
    node = await losing.add()
    async with kubelet_of(losing.admin, losing.namespace, tmp_path) as kubelet:
        kubelet.choose = lambda _pod: behaviours.pretend_to_run
        kubelet.keeps.add(NAME)
        assert await runtime.start(start_of())
        await losing.admin.until(pods(losing.namespace, NAME), lambda pod: pod["status"]["phase"] == "Running")
        losing.lose(node)

        async def lost() -> Found | None:
            found = await runtime.get(NAME)
            return found if found is not None and found.state == "ended" else None

        found = await until("its node is lost", lost)
        assert found.why == "disrupted"
        assert found.diagnosis is not None
        assert found.diagnosis.category == "node_lost"

        again = start_of(2, UUID(int=8))
        assert not await runtime.start(again)
        late = timedelta(minutes=10)
        assert not await runtime.start(again)  # it is forced away now
        assert await runtime.start(again)
        assert await runtime.get(NAME) is None
