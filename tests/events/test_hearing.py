"""A kind that hears a type of event gets a delivery of each, made in the transaction that records the event."""

import contextlib
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import asyncpg
import orjson
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from paddock.db.pool import Transaction
from paddock.jobs import events, wire
from paddock.jobs.core import Core, declare_kinds, open_core
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Event, NewEvent, NewJob
from paddock.metrics import Metrics
from tests.kinds import ANYBODY, TEST_KINDS, Anything, nothing
from tests.playing import read, submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PAGE = Path(__file__).parents[2] / "docs" / "extending.md"
heard: list[Event] = []


async def listen(tx: Transaction, event: Event) -> NewJob | None:
    """`data` says what becomes of it; the row shows that it can read what the transaction wrote."""
    heard.append(event)
    assert await tx.fetchval("SELECT type FROM events WHERE id = $1", event.id) == event.type
    wants = event.data.get("wants")
    if wants == "raise":
        raise RuntimeError("It cannot listen now.")
    if wants == "sql":
        await tx.execute("SELECT 1 / 0")
    if wants == "nothing":
        return None
    if wants == "another kind":
        return NewJob("plain", {})
    return NewJob("listener", {"event": str(event.id), "lock": event.data.get("lock")}, owner=event.owner)


LISTENER = Kind(
    name="listener",
    payload=Anything,
    handler=nothing,
    submit=ANYBODY,
    lock_key=lambda payload: payload.lock,
    hears={"thing.made": listen},
)


@pytest.fixture
def listener() -> Kind:
    return LISTENER


@pytest.fixture
async def core(dsn: str, listener: Kind) -> AsyncIterator[Core]:
    heard.clear()
    async with open_core(dsn, Kinds([*TEST_KINDS, listener]), metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


async def tell(core: Core, type: str = "thing.made", owner: str = "ann", **data: Any) -> None:
    async with core.db.transaction() as tx:
        await events.emit(core, tx, [events.OwnedEvent(NewEvent(type, "thing:1", data), owner)])


async def deliveries(connection: Connection) -> list[dict[str, Any]]:
    rows = await connection.fetch(
        "SELECT d.event_id, d.webhook_id, d.kind, d.owner, j.kind AS job_kind, j.payload FROM deliveries d"
        " JOIN jobs j ON j.id = d.job_id ORDER BY d.job_id"
    )
    assert len(rows) == await connection.fetchval("SELECT count(*) FROM deliveries")
    return [dict(row) for row in rows]


async def test_it_gets_one_delivery_of_an_event(core: Core, connection: Connection) -> None:
    await tell(core, n=1)
    await tell(core, "thing.lost")
    [event] = heard
    recorded = await connection.fetchrow("SELECT * FROM events WHERE type = 'thing.made'")
    assert recorded is not None
    assert event == Event(**{**recorded, "data": orjson.loads(recorded["data"])})
    [delivery] = await deliveries(connection)
    assert (delivery["event_id"], delivery["kind"], delivery["webhook_id"]) == (event.id, "listener", None)
    assert (delivery["job_kind"], delivery["owner"]) == ("listener", "ann")
    assert orjson.loads(delivery["payload"])["event"] == str(event.id)


async def test_a_webhook_is_told_beside_it(core: Core, connection: Connection) -> None:
    await connection.execute(
        "INSERT INTO webhooks (owner, url, types, secret) VALUES ('ann', 'https://x.test', '{*}', 's')"
    )
    await tell(core)
    assert sorted(str(delivery["job_kind"]) for delivery in await deliveries(connection)) == ["listener", "webhook"]


async def test_each_event_of_many_gets_its_own(core: Core, connection: Connection) -> None:
    async with core.db.transaction() as tx:
        facts = [
            events.OwnedEvent(NewEvent("thing.made" if n % 2 else "thing.lost", f"thing:{n}"), "ann") for n in range(40)
        ]
        await events.emit(core, tx, facts)
    assert [event.subject for event in heard] == [f"thing:{n}" for n in range(1, 40, 2)]
    told = {orjson.loads(delivery["payload"])["event"] for delivery in await deliveries(connection)}
    assert told == {str(event.id) for event in heard}


async def test_many_events_cost_no_more_statements_than_one(core: Core, connection: Connection) -> None:
    """But for what the kind itself asks of each: here one."""

    async def statements(n: int) -> int:
        asked: list[object] = []
        async with core.db.transaction() as tx:
            facts = [events.OwnedEvent(NewEvent("thing.made", f"thing:{n}"), "ann") for n in range(n)]
            with tx.connection.query_logger(asked.append):
                await events.emit(core, tx, facts)
        return len(asked) - n

    await statements(1)  # the connection learns about types
    assert await statements(1) == await statements(50)
    assert len(await deliveries(connection)) == 52


async def test_it_may_want_none(core: Core, connection: Connection) -> None:
    await tell(core, wants="nothing")
    assert len(heard) == 1
    assert await deliveries(connection) == []
    assert await connection.fetchval("SELECT count(*) FROM events") == 1


async def test_one_of_a_transaction_that_fails_never_was(core: Core, connection: Connection) -> None:
    with contextlib.suppress(RuntimeError):
        async with core.db.transaction() as tx:
            await events.emit(core, tx, [events.OwnedEvent(NewEvent("thing.made", "x"), "ann")])
            raise RuntimeError
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0
    assert await deliveries(connection) == []


@pytest.mark.parametrize("wants", ["raise", "sql", "another kind", "a lock that is held"])
async def test_one_that_cannot_listen_undoes_nothing(core: Core, connection: Connection, wants: str) -> None:
    """The end of a job that emits the event stands, and so does what else belongs to it."""
    [holder] = await submit(core, "listener", payload={"lock": "a"})
    [job] = await submit(core)
    data = {"lock": "a"} if wants == "a lock that is held" else {"wants": wants}
    with capture_logs() as logged:
        attempt = await (await worker(core)).claim_one()
        told = [wire.Event(type="thing.made", subject="x", data=data), wire.Event(type="thing.made", subject="y")]
        assert await attempt.finish(events=told) == "accepted"
    assert (await read(core, job)).status == "completed"
    assert [line["event"] for line in logged if line["log_level"] == "error"] == ["hearing_failed"]
    assert await connection.fetchval("SELECT count(*) FROM events") == 2
    assert [delivery["event_id"] for delivery in await deliveries(connection)] == [heard[-1].id], (
        "the next one is heard"
    )
    assert (await read(core, holder)).status == "pending"


class TestEndsOfJobs:
    """Without somebody who listens they leave no row, and are written by a statement that tells nobody."""

    @pytest.fixture
    def listener(self) -> Kind:
        return replace(LISTENER, hears={"job.completed": listen, "job.failed": listen})

    async def test_they_are_heard(self, core: Core, connection: Connection) -> None:
        completed, failed, cancelled = await submit(core, n=3)
        one, two = await (await worker(core)).claim(limit=2)
        assert (one.id, two.id) == (completed, failed)
        await one.finish()
        await two.finish("permanent")
        await core.cancel([cancelled], actor="ann")
        assert [(event.type, event.subject) for event in heard] == [
            ("job.completed", str(completed)),
            ("job.failed", str(failed)),
        ]
        assert len(await deliveries(connection)) == 2
        assert await connection.fetchval("SELECT count(*) FROM events") == 2, "nobody hears of a cancelled one"

    async def test_the_end_of_a_delivery_is_no_event(self, core: Core, connection: Connection) -> None:
        await submit(core)
        played = await worker(core)
        await (await played.claim_one()).finish()
        await (await played.claim_one("listener")).finish("permanent")
        assert len(heard) == 1
        [failed] = await connection.fetch("SELECT job_id FROM deliveries")
        await core.retry(failed["job_id"], actor="ann")
        await (await played.claim_one("listener")).finish()
        assert len(heard) == 1, "a person's retry of it is a delivery too"
        assert await connection.fetchval("SELECT count(*) FROM deliveries") == 2
        assert await connection.fetchval("SELECT count(*) FROM jobs") == 0

    async def test_the_end_of_another_job_of_that_kind_is_one(self, core: Core) -> None:
        [id] = await submit(core, "listener")
        await (await (await worker(core)).claim_one("listener")).finish()
        assert [event.subject for event in heard] == [str(id)]


class TestTheExampleOfTheDocumentation:
    @pytest.fixture
    def listener(self) -> Kind:
        [snippet] = re.findall(r"## Hear an event\n.+?```python\n(.+?)```", PAGE.read_text("utf-8"), re.DOTALL)
        namespace: dict[str, Any] = {}
        exec(snippet, namespace)
        found: Kind = namespace["THANK"]
        return found

    async def test_it_hears_of_greetings_alone(self, core: Core, connection: Connection) -> None:
        core.kinds.add(Kind(name="greet", payload=Anything, handler=nothing))
        await declare_kinds(core.db, core.kinds)
        await submit(core)
        [greeting] = await submit(core, "greet", owner="bob")
        played = await worker(core)
        await (await played.claim_one()).finish()
        await (await played.claim_one("greet")).finish()
        [delivery] = await deliveries(connection)
        assert (delivery["job_kind"], delivery["owner"]) == ("thank", "bob")
        assert orjson.loads(delivery["payload"])["job_id"] == str(greeting)
