"""Two who want different things at the same time: one of them wins, and nothing is left of the other."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from uuid import UUID

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.exports import snapshot_states, snapshots
from paddock.instances import model
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.errors import Refused
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import (
    create,
    export,
    make_mapping,
    ready_snapshot,
    running,
    until,
    until_gone,
    until_idle,
    until_status,
    working,
)


async def nothing_left(core: Core, runtime: FakeRuntime, id: str) -> None:
    await until_gone(core, id)
    await until_idle(core)
    assert runtime.running == {}
    pool = core.db.pool("durable")
    assert await pool.fetchval("SELECT count(*) FROM snapshot_uses") == 0
    assert await pool.fetchval("SELECT count(*) FROM jobs WHERE lock_key IS NOT NULL AND kind LIKE 'instance%'") == 0


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("end", ["ready", "failed", "cancelled"])
async def test_delete_against_the_end_of_its_snapshot(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, end: str
) -> None:
    made = await create(ada, mapping_id=str((await make_mapping(core)).id))
    snapshot = await snapshot_states.get(core.db, UUID(made["pending_snapshot_id"]))
    assert snapshot is not None

    async def ends() -> None:
        try:
            if end == "cancelled":
                await snapshots.cancel(core, snapshot, actor="ada")
            else:
                await export(core, config, fail=end == "failed")
        except (Refused, AssertionError):  # the deletion has cancelled it already
            pass

    answer, _ = await asyncio.gather(ada.delete(f"/api/instances/{made['id']}"), ends())
    assert answer.status_code == 200
    await nothing_left(core, runtime, made["id"])


@pytest.mark.usefixtures("at_work")
async def test_delete_against_itself(core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    runtime.ends_slowly = 3
    answers = await asyncio.gather(*(ada.delete(f"/api/instances/{made['id']}") for _ in range(10)))
    assert {answer.status_code for answer in answers} == {200}
    await nothing_left(core, runtime, made["id"])
    deleted = "SELECT count(*) FROM events WHERE type = 'instance.deleted'"
    assert await core.db.pool("durable").fetchval(deleted) == 1


@pytest.mark.usefixtures("at_work")
async def test_delete_against_reopen(core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient) -> None:
    made = await running(core, ada, await ready_snapshot(core, config))
    path = f"/api/instances/{made['id']}"
    answers = await asyncio.gather(*(ada.post(f"{path}/reopen") for _ in range(4)), ada.delete(path))
    assert {answer.status_code for answer in answers} <= {200, 202, 404, 409}
    assert answers[-1].status_code == 200
    await nothing_left(core, runtime, made["id"])


@pytest.mark.usefixtures("at_work")
async def test_a_snapshot_cannot_go_while_an_instance_is_made_of_it(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    created, deleted = await asyncio.gather(
        ada.post("/api/instances", json={"snapshot_id": str(snapshot.id)}), ada.delete(f"/api/snapshots/{snapshot.id}")
    )
    assert (created.status_code, deleted.status_code) in ((201, 409), (409, 202), (404, 202))


@pytest.mark.usefixtures("at_work")
@pytest.mark.parametrize("at", ["get", "start", "logs", "delete"])
@pytest.mark.parametrize("failing", [False, True])
async def test_delete_against_each_step_of_a_start(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, at: str, failing: bool
) -> None:
    """The start is held before a step, the deletion is written, then both go on."""
    gate, reached = asyncio.Event(), asyncio.Event()

    async def held(what: str, name: str) -> None:
        if what == at and not gate.is_set():
            reached.set()
            await gate.wait()

    runtime.before = held
    if failing or at in ("logs", "delete"):
        runtime.behaviour.phases = [{"phase": "failed", "error": {"cause": "loader_died"}}]
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    await asyncio.wait_for(reached.wait(), 60)
    deleting = asyncio.create_task(ada.delete(f"/api/instances/{made['id']}"))
    await until_status(core, made["id"], "stopping")
    gate.set()
    assert (await deleting).status_code == 200
    await nothing_left(core, runtime, made["id"])


@pytest.fixture
async def second(dsn: str, config: Config) -> AsyncIterator[Core]:
    """Another replica on the same database. Its worker's lease is short, so that its death is noticed soon."""
    async with open_core(dsn, all_kinds(config), CoreSettings(), metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


async def rescued(core: Core, kind: str) -> None:
    """As if the session of whoever holds these jobs had died."""
    await core.db.pool("durable").execute(
        "UPDATE sessions SET expires_at = paddock_now() - interval '1 hour' WHERE id IN"
        " (SELECT session_id FROM jobs WHERE kind = $1)",
        kind,
    )
    await core.db.pool("durable").execute(
        "UPDATE service SET served_at = paddock_now(), resumed_at = paddock_now() - interval '1 day'"
    )


@pytest.mark.parametrize("at", ["start", "get"])
async def test_a_replica_that_stood_still_in_the_middle_of_a_start_changes_nothing_when_it_wakes(
    core: Core, second: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, at: str
) -> None:
    gate, reached = asyncio.Event(), asyncio.Event()
    held: list[Callable[[], Awaitable[bool]]] = []

    async def hold_the_first(what: str, name: str) -> None:
        if what == at and not held:
            held.append(gate.wait)
            reached.set()
            await gate.wait()

    runtime.before = hold_the_first
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    async with working(core, config):
        await asyncio.wait_for(reached.wait(), 60)

        async def taken_over() -> bool:
            await rescued(core, "instance_start")
            await second.tick()
            found = await model.get(core.db, UUID(made["id"]))
            return found is not None and found.status == "running"

        async with working(second, config):
            await until("the other replica has started it", taken_over)
            gate.set()
            await until_idle(core)
        found = await model.get(core.db, UUID(made["id"]))
        assert found is not None
        assert (found.status, found.generation_number) == ("running", 1)
        assert runtime.started == [found.pod_name]


@pytest.mark.usefixtures("at_work")
async def test_delete_after_the_last_look_of_a_cleanup_is_not_forgotten(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cleanup has seen that nobody deletes it and still holds the lock: its end makes the stop."""
    gate, reached = asyncio.Event(), asyncio.Event()
    delete = runtime.delete

    async def held(name: str, *, keep_loaded: bool = False) -> bool:
        gone = await delete(name, keep_loaded=keep_loaded)
        if not gate.is_set():
            reached.set()
            await gate.wait()
        return gone

    monkeypatch.setattr(runtime, "delete", held)
    runtime.behaviour.phases = [{"phase": "failed", "error": {"cause": "loader_died"}}]
    made = await create(ada, snapshot_id=str((await ready_snapshot(core, config)).id))
    await asyncio.wait_for(reached.wait(), 60)
    deleting = asyncio.create_task(ada.delete(f"/api/instances/{made['id']}"))
    await until_status(core, made["id"], "stopping")
    gate.set()
    assert (await deleting).status_code == 200
    await nothing_left(core, runtime, made["id"])
