"""The limits hold, whoever asks at the same time."""

import asyncio
from collections import Counter

import httpx2
import pytest

from paddock.config import Config
from paddock.jobs.core import Core
from tests.api.conftest import Clients
from tests.instances.fake_runtime import READY, FakeRuntime
from tests.instances.world import code_of, create, export, make_mapping, ready_snapshot, until_idle, until_status

GB = 1 << 30


@pytest.mark.usefixtures("runtime")
async def test_two_hundred_at_once_by_twenty_people_are_five_each_and_fifty_in_all(
    core: Core, clients: Clients
) -> None:
    people = [f"person{n}" for n in range(20)]
    asked = []
    for name in people:
        await clients.token(name, "analyst")
        mapping = await make_mapping(core, owner=name)
        asked += [(await clients(name), str(mapping.id))] * 10
    answers = await asyncio.gather(*(who.post("/api/instances", json={"mapping_id": id}) for who, id in asked))
    outcomes = Counter(answer.status_code for answer in answers)
    assert outcomes == {201: 50, 409: 150}
    assert {answer.json()["error"]["code"] for answer in answers if answer.status_code == 409} == {
        "CONCURRENCY_LIMIT_EXCEEDED"
    }
    owners = Counter(answer.json()["data"]["owner"] for answer in answers if answer.status_code == 201)
    assert max(owners.values()) <= 5
    snapshots = await core.db.pool("durable").fetchval("SELECT count(*) FROM snapshots")
    assert snapshots == 50, "what was refused left no snapshot behind"


async def test_the_sixth_names_the_limit_and_ones_own(core: Core, config: Config, ada: httpx2.AsyncClient) -> None:
    snapshot = await ready_snapshot(core, config)
    for n in range(5):
        await create(ada, snapshot_id=str(snapshot.id), name=f"mine {n}")
    refused = await ada.post("/api/instances", json={"snapshot_id": str(snapshot.id)})
    assert code_of(refused) == (409, "CONCURRENCY_LIMIT_EXCEEDED")
    error = refused.json()["error"]
    assert error["details"]["limit"] == "concurrency.per_analyst"
    assert [one["name"] for one in error["details"]["instances"]] == [f"mine {n}" for n in range(5)]
    assert "You may have 5 live instances" in error["message"]


async def test_memory_is_bounded_for_one_for_all_and_by_the_machine(
    core: Core, config: Config, runtime: FakeRuntime, clients: Clients, grace: httpx2.AsyncClient
) -> None:
    ada, bob = await clients("ada"), await clients("bob")
    snapshot = await ready_snapshot(core, config)
    theirs = await ready_snapshot(core, config, owner="bob")
    await create(ada, snapshot_id=str(snapshot.id), memory_gb=32)
    await create(ada, snapshot_id=str(snapshot.id), memory_gb=32)
    refused = await ada.post("/api/instances", json={"snapshot_id": str(snapshot.id)})
    assert refused.json()["error"]["details"]["limit"] == "concurrency.per_analyst_memory_gb"
    changed = {"settings": {"concurrency.cluster_memory_gb": 70}, "reason": "small"}
    assert (await grace.put("/api/ops/config", json=changed)).status_code == 200
    refused = await bob.post("/api/instances", json={"snapshot_id": str(theirs.id), "memory_gb": 8})
    assert refused.json()["error"]["details"]["limit"] == "concurrency.cluster_memory_gb"
    assert refused.json()["error"]["details"]["instances"] == [], "whose the others are is nobody's business"
    runtime.room = 66 * GB
    refused = await bob.post("/api/instances", json={"snapshot_id": str(theirs.id), "memory_gb": 4})
    assert refused.json()["error"]["details"]["limit"] == "runtime.memory_gb"
    await create(bob, snapshot_id=str(theirs.id), memory_gb=2)


@pytest.mark.usefixtures("at_work")
async def test_the_limits_are_asked_again_when_the_size_is_known(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    runtime.room = 2 * GB
    made = await create(ada, mapping_id=str((await make_mapping(core)).id))
    await core.db.pool("durable").execute("UPDATE instances SET memory_gb = 4, memory_asked = true")
    await export(core, config)
    found = await until_status(core, made["id"], "failed")
    assert found.error is not None
    assert found.error["code"] == "STARTUP_FAILED"
    assert "This machine has room" in found.error["message"]
    runtime.room = None
    assert (await ada.post(f"/api/instances/{made['id']}/reopen")).status_code == 202
    await until_status(core, made["id"], "running")
    await until_idle(core)


@pytest.mark.usefixtures("at_work")
async def test_a_failed_one_gives_its_place_free_and_takes_it_again_only_if_there_is_one(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    runtime.behaviour.phases = [{"phase": "failed", "error": {"cause": "loader_died"}}]
    failed = await create(ada, snapshot_id=str(snapshot.id))
    await until_status(core, failed["id"], "failed")
    await until_idle(core)
    runtime.behaviour.phases = [READY]
    for _ in range(5):
        await create(ada, snapshot_id=str(snapshot.id))
    refused = await ada.post(f"/api/instances/{failed['id']}/reopen")
    assert code_of(refused) == (409, "CONCURRENCY_LIMIT_EXCEEDED")
