"""More memory for an instance that runs, by a job that holds its lock."""

import json
from typing import Literal
from uuid import UUID

import httpx2
import pytest

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import growing
from paddock.instances.model import SQL, get
from paddock.jobs.core import Core
from paddock.jobs.model import JsonObject
from paddock.jobs.outcomes import Again, Done
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.cluster.admin import Admin, Json, pods
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.instances.world import code_of, events_of, ready_snapshot, running, until, until_gone, until_idle
from tests.kubernetes.pods.pretending import Pretending
from tests.kubernetes.pods.turns import grow_turns

Resizes = Literal["shown", "deferred", "infeasible", "unseen"]


@pytest.fixture
async def snapshot(core: Core, config: Config) -> Snapshot:
    return await ready_snapshot(core, config)


async def ask_for(core: Core, id: str, memory_gb: int) -> None:
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["lock_instance"], UUID(id))
        assert row is not None
        await core.enqueue(tx, [growing.grow_job(row, memory_gb=memory_gb, percent=93, urgent=True)])


def limit_of(pod: Json) -> str:
    return str(pod["spec"]["containers"][0]["resources"]["limits"]["memory"])


async def reserved(core: Core, id: str) -> object:
    return await core.db.pool("durable").fetchval("SELECT growing_to_gb FROM instances WHERE id = $1", UUID(id))


async def told(core: Core, id: str) -> JsonObject:
    """What the owner reads of it."""

    async def look() -> JsonObject | None:
        found = await core.db.pool("durable").fetchval(
            "SELECT data FROM events WHERE subject = $1 AND type = 'instance.memory_high'", f"instance:{id}"
        )
        return None if found is None else dict(json.loads(found))

    return await until("its owner was told", look)


@pytest.mark.usefixtures("pretending", "at_work")
async def test_an_instance_gets_more_memory_without_a_restart(
    core: Core, ada: httpx2.AsyncClient, snapshot: Snapshot, admin: Admin, namespace: str
) -> None:
    made = await running(core, ada, snapshot, memory_gb=2)
    [before] = await admin.list(pods(namespace))
    await ask_for(core, made["id"], 4)
    data = await told(core, made["id"])
    assert (data["outcome"], data["memory_gb"], data["wanted_gb"]) == ("resized", 2, 4)
    [after] = await admin.list(pods(namespace))
    assert (after["metadata"]["uid"], limit_of(after)) == (before["metadata"]["uid"], "4Gi")
    found = await get(core.db, UUID(made["id"]))
    assert found is not None
    assert (found.memory_gb, found.status) == (4, "running")
    assert await reserved(core, made["id"]) is None


@pytest.mark.usefixtures("pretending", "at_work")
async def test_what_one_may_grow_to_is_nobody_elses_meanwhile(
    core: Core, ada: httpx2.AsyncClient, root: httpx2.AsyncClient, snapshot: Snapshot, kubelet: Kubelet
) -> None:
    settings = {"concurrency.cluster_memory_gb": 7}
    assert (await root.put("/api/ops/config", json={"settings": settings})).status_code == 200
    grows = await running(core, ada, snapshot, memory_gb=2)
    other = await running(core, ada, snapshot, memory_gb=2)
    kubelet.resizes = "deferred"
    await ask_for(core, grows["id"], 4)

    async def holds() -> bool:
        return await reserved(core, grows["id"]) == 4

    await until("its room is reserved", holds)
    refused = await ada.post("/api/instances", json={"snapshot_id": str(snapshot.id), "memory_gb": 2})
    assert code_of(refused) == (409, "CONCURRENCY_LIMIT_EXCEEDED")
    await ask_for(core, other["id"], 4)
    assert (await told(core, other["id"]))["outcome"] == "limited"
    assert (await ada.delete(f"/api/instances/{grows['id']}", timeout=60)).status_code == 200
    await until_gone(core, grows["id"])
    again = await ada.post("/api/instances", json={"snapshot_id": str(snapshot.id), "memory_gb": 2})
    assert again.status_code == 201, again.text


@pytest.mark.usefixtures("pretending", "at_work")
async def test_a_resize_that_the_api_refuses_is_an_event_and_nothing_changes(
    core: Core, ada: httpx2.AsyncClient, snapshot: Snapshot, faults: Faults
) -> None:
    made = await running(core, ada, snapshot, memory_gb=2)
    message = "node didn't have enough allocatable resources"
    faults.refuse(403, method="PATCH", path="/resize", message=message, reason="Forbidden")
    await ask_for(core, made["id"], 4)
    data = await told(core, made["id"])
    assert data["outcome"] == "refused"
    assert message in data["message"]
    found = await get(core.db, UUID(made["id"]))
    assert found is not None
    assert found.memory_gb == 2


@pytest.mark.usefixtures("pretending", "at_work")
async def test_deleting_an_instance_ends_its_growing(
    core: Core, ada: httpx2.AsyncClient, snapshot: Snapshot, kubelet: Kubelet, admin: Admin, namespace: str
) -> None:
    made = await running(core, ada, snapshot, memory_gb=2)
    kubelet.resizes = "deferred"
    await ask_for(core, made["id"], 4)
    [pod] = await admin.list(pods(namespace))
    await admin.until(pods(namespace, pod["metadata"]["name"]), lambda pod: "PodResizePending" in str(pod["status"]))
    assert (await ada.delete(f"/api/instances/{made['id']}", timeout=60)).status_code == 200
    await until_gone(core, made["id"])
    await until_idle(core)
    assert await admin.list(pods(namespace)) == []


@pytest.mark.parametrize("resizes", ["deferred", "infeasible"])
async def test_what_its_node_has_no_room_for_is_taken_back_after_a_minute(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    kubelet: Kubelet,
    admin: Admin,
    namespace: str,
    runtime: KubernetesRuntime,
    pretending: Pretending,
    at_work: None,
    resizes: Resizes,
) -> None:
    made = await running(core, ada, snapshot, memory_gb=2)
    kubelet.resizes = resizes
    turns = await grow_turns(core, config, made["id"], 4)
    assert isinstance(await turns.next(0), Again)
    [pod] = await admin.list(pods(namespace))
    assert limit_of(pod) == "4Gi"
    assert isinstance(await turns.next(50), Again)
    done = await turns.next(61)
    assert isinstance(done, Done)
    assert done.result["outcome"] == "deferred"
    [pod] = await admin.list(pods(namespace))
    assert limit_of(pod) == "2Gi"
    assert "memory_high" not in await events_of(core, made["id"])
