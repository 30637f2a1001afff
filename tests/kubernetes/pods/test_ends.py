"""What follows when a pod ends, is taken away or is gone; heard by the watch, decided by asking."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID

import httpx2
import pytest

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.instances.model import SQL, Instance
from paddock.jobs.core import Core
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.cluster import behaviours
from tests.cluster.admin import Admin, pods
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.instances.world import create, events_of, ready_snapshot, running, until, until_gone, until_status
from tests.kubernetes.pods.conftest import INSTALLATION
from tests.kubernetes.pods.pretending import Pretending
from tests.kubernetes.pods.test_starts import NAME, start_of


@pytest.fixture
async def snapshot(core: Core, config: Config) -> Snapshot:
    return await ready_snapshot(core, config)


async def name_of(core: Core, id: str) -> str:
    row = await core.db.fetchrow(SQL["instance_row"], UUID(id))
    assert row is not None
    return str(row["pod_name"])


async def until_start(core: Core, id: str, number: int) -> Instance:
    """Running, as the start of this number."""

    async def look() -> Instance | None:
        found = await until_status(core, id, "running", "failed")
        return found if found.generation_number == number else None

    return await until(f"start {number} of {id} runs", look)


@pytest.mark.usefixtures("pretending", "at_work")
async def test_a_pod_that_somebody_deletes_fails_its_instance_at_once(
    core: Core, ada: httpx2.AsyncClient, snapshot: Snapshot, admin: Admin, namespace: str
) -> None:
    made = await running(core, ada, snapshot)
    name = await name_of(core, made["id"])
    await admin.delete(pods(namespace, name))
    failed = await until_status(core, made["id"], "failed")
    assert failed.error is not None
    assert failed.error["code"] == "UNEXPECTED_TERMINATION"
    assert failed.error["message"] == f"Pod {name} disappeared from Kubernetes"


@pytest.mark.usefixtures("at_work")
async def test_a_pod_that_ends_by_itself_is_kept_in_the_row_and_taken_away(
    core: Core,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    namespace: str,
    kubelet: Kubelet,
    pretending: Pretending,
) -> None:
    made = await running(core, ada, snapshot)
    name = await name_of(core, made["id"])
    kubelet.log_of(name).write_text("its last words\n")
    await kubelet.apply(name, behaviours.exits(70, message="broken"))

    failed = await until_status(core, made["id"], "failed")
    assert failed.error is not None
    assert (failed.error["code"], failed.error["message"]) == ("UNEXPECTED_TERMINATION", "Pod entered Failed phase")
    assert failed.error["diagnosis"]["category"] == "exit_code"
    await admin.until_gone(pods(namespace, name))
    logs = await ada.get(f"/api/instances/{made['id']}/logs")
    assert logs.json()["data"]["log"] == "its last words\n"
    evidence = await core.db.pool("durable").fetchval("SELECT evidence FROM instances WHERE id = $1", UUID(made["id"]))
    assert '"exitCode": 70' in evidence


@pytest.mark.usefixtures("at_work")
async def test_what_the_cluster_takes_away_is_started_again_three_times(
    core: Core,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    kubelet: Kubelet,
    pretending: Pretending,
    namespace: str,
) -> None:
    made = await running(core, ada, snapshot)
    for number in range(1, 5):
        await until_start(core, made["id"], number)
        await kubelet.apply(await name_of(core, made["id"]), behaviours.evicted())
    failed = await until_status(core, made["id"], "failed")
    assert failed.error is not None
    assert failed.error["code"] == "UNEXPECTED_TERMINATION"
    assert failed.error["message"].startswith("Pod entered Failed phase")
    assert "started again 3 times" in failed.error["message"]
    assert (await events_of(core, made["id"])).count("restarted") == 3

    async def none_left() -> bool:
        return await admin.list(pods(namespace)) == []

    await until("no pod is left", none_left)


@pytest.mark.usefixtures("pretending", "at_work")
async def test_one_that_is_evicted_through_the_api_and_gone_in_a_moment_is_started_again(
    core: Core, ada: httpx2.AsyncClient, snapshot: Snapshot, admin: Admin, namespace: str
) -> None:
    made = await running(core, ada, snapshot)
    name = await name_of(core, made["id"])
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    await admin.ask("POST", f"{pods(namespace, name)}/eviction", eviction)
    await until_start(core, made["id"], 2)


@pytest.mark.usefixtures("at_work")
async def test_one_that_ran_out_of_memory_gets_twice_as_much_up_to_the_cap(
    core: Core, ada: httpx2.AsyncClient, snapshot: Snapshot, kubelet: Kubelet, pretending: Pretending
) -> None:
    made = await running(core, ada, snapshot, memory_gb=8)
    for number, memory_gb in ((1, 8), (2, 16), (3, 32)):
        assert (await until_start(core, made["id"], number)).memory_gb == memory_gb
        await kubelet.apply(await name_of(core, made["id"]), behaviours.oom_killed)
    failed = await until_status(core, made["id"], "failed")
    assert failed.error is not None
    assert failed.error["code"] == "OOM_KILLED"


@pytest.mark.usefixtures("at_work")
async def test_a_pod_evicted_while_its_instance_loads_is_started_again(
    core: Core,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    kubelet: Kubelet,
    pretending: Pretending,
    admin: Admin,
    namespace: str,
) -> None:
    kubelet.choose = lambda _pod: behaviours.pretend_to_run
    made = await create(ada, snapshot_id=str(snapshot.id))
    name = f"ladybug-wrapper-{made['id']}-1"
    await admin.until(pods(namespace, name), lambda pod: pod["status"]["phase"] == "Running")
    kubelet.choose = lambda _pod: pretending.run
    await kubelet.apply(name, behaviours.evicted())
    await until_start(core, made["id"], 2)


async def test_a_pod_whose_node_confirms_nothing_is_forced_away_after_its_grace(
    core: Core, client: Kubernetes, admin: Admin, namespace: str, nodes: Nodes, kubelet: Kubelet
) -> None:
    late = timedelta()
    runtime = KubernetesRuntime(
        client,
        namespace=namespace,
        image="x",
        settings=PodSettings(),
        installation=INSTALLATION,
        now=lambda: datetime.now(UTC) + late,
    )
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.pretend_to_run
    kubelet.keeps.add(NAME)
    assert await runtime.start(start_of())
    await admin.until(pods(namespace, NAME), lambda pod: pod["status"]["phase"] == "Running")
    assert not await runtime.delete(NAME)
    assert not await runtime.delete(NAME)
    late = timedelta(seconds=30)  # its grace of 10 s is over since 20 s
    assert not await runtime.delete(NAME)
    assert await admin.get(pods(namespace, NAME)) is not None
    late = timedelta(seconds=60)
    assert not await runtime.delete(NAME)
    assert await runtime.delete(NAME)
    assert await admin.get(pods(namespace, NAME)) is None


async def test_a_delete_by_another_uid_leaves_what_has_the_name_now(
    runtime: KubernetesRuntime, admin: Admin, namespace: str
) -> None:
    assert await runtime.start(start_of())
    assert await runtime.delete(NAME, "019a8b1e-0000-0000-0000-000000000000")
    await runtime.release(NAME, "019a8b1e-0000-0000-0000-000000000000")
    found = await admin.get(pods(namespace, NAME))
    assert found is not None
    assert "deletionTimestamp" not in found["metadata"]


@pytest.mark.usefixtures("pretending", "at_work")
async def test_while_the_api_server_is_away_what_runs_answers_and_nothing_fails(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    faults: Faults,
    admin: Admin,
    namespace: str,
) -> None:
    made = await running(core, ada, snapshot)
    name = await name_of(core, made["id"])
    with faults.gone_away():
        faults.requests.clear()
        assert (await ada.get(f"/api/instances/{made['id']}/status")).status_code == 200
        waiting = await create(ada, snapshot_id=str(snapshot.id))

        async def asked() -> bool:
            return len(faults.requests) > 3

        await until("the API server was asked in vain", asked)
        assert (await until_status(core, made["id"], "running")).pod_name == name
        assert (await until_status(core, waiting["id"], "starting")).error is None
    await until_status(core, waiting["id"], "running")
    assert await admin.get(pods(namespace, name)) is not None


@pytest.mark.usefixtures("pretending", "at_work")
async def test_what_ended_while_the_watch_was_cut_is_found_when_all_is_listed_again(
    core: Core, ada: httpx2.AsyncClient, snapshot: Snapshot, faults: Faults, admin: Admin, namespace: str
) -> None:
    made = await running(core, ada, snapshot)
    gate = faults.hold(method="GET", path="/pods")
    assert faults.cut_watches() == 1
    await gate.wait()
    name = await name_of(core, made["id"])
    await admin.delete(pods(namespace, name))
    await admin.until_gone(pods(namespace, name))
    gate.release()
    failed = await until_status(core, made["id"], "failed")
    assert failed.error is not None
    assert failed.error["message"] == f"Pod {name} disappeared from Kubernetes"


@pytest.mark.usefixtures("pretending", "at_work")
async def test_twelve_instances_come_and_go_and_nothing_is_left(
    core: Core, ada: httpx2.AsyncClient, root: httpx2.AsyncClient, snapshot: Snapshot, admin: Admin, namespace: str
) -> None:
    answer = await root.put("/api/ops/config", json={"settings": {"concurrency.per_analyst": 12}})
    assert answer.status_code == 200, answer.text
    made = await asyncio.gather(*(running(core, ada, snapshot) for _ in range(12)))
    assert len(await admin.list(pods(namespace))) == 12
    answers = await asyncio.gather(*(ada.delete(f"/api/instances/{one['id']}", timeout=60) for one in made))
    assert {answer.status_code for answer in answers} == {200}
    for one in made:
        await until_gone(core, one["id"])
    assert await admin.list(pods(namespace)) == []
