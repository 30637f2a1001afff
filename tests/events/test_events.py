"""An event and its deliveries exist if and only if the change they report was committed."""

import contextlib
from typing import TypeAlias

import asyncpg
import orjson
import pytest

from paddock.jobs import events, rescuing, wire
from paddock.jobs.core import Core
from paddock.jobs.model import NewEvent
from tests.conftest import DatabaseClock
from tests.playing import served, submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


async def subscribe(connection: Connection, *types: str, owner: str = "ann", all_owners: bool = False) -> object:
    return await connection.fetchval(
        "INSERT INTO webhooks (owner, all_owners, url, types, secret) VALUES ($1, $2, 'https://x.test', $3, 's')"
        " RETURNING id",
        owner,
        all_owners,
        list(types),
    )


async def told(connection: Connection) -> list[tuple[str, str, object]]:
    """(type, owner, webhook) of every delivery, each with its event and its job."""
    rows = await connection.fetch(
        "SELECT e.type, e.owner, d.webhook_id, j.payload, j.kind, e.id FROM deliveries d"
        " JOIN events e ON e.id = d.event_id JOIN jobs j ON j.id = d.job_id ORDER BY e.id, d.webhook_id"
    )
    assert len(rows) == await connection.fetchval("SELECT count(*) FROM deliveries")
    assert len(rows) == await connection.fetchval("SELECT count(*) FROM jobs WHERE kind = 'webhook'")
    for row in rows:
        payload = {"event_id": str(row["id"]), "webhook_id": str(row["webhook_id"]), "receiver": "x.test"}
        assert orjson.loads(row["payload"]) == payload
    return [(row["type"], row["owner"], row["webhook_id"]) for row in rows]


async def test_every_end_is_told_to_who_listens(core: Core, clock: DatabaseClock, connection: Connection) -> None:
    hook = await subscribe(connection, "job.*")
    ids = await submit(core, n=4)
    done, failed, _, lost = await (await worker(core)).claim(limit=4)
    await done.finish()
    await clock.advance(seconds=1)
    await failed.finish("permanent")
    await clock.advance(seconds=1)
    await core.cancel([ids[2]], actor="ann")
    await connection.execute("UPDATE kinds SET loss_limit = 0")
    await served(core, clock, seconds=70)
    assert lost.id == ids[3]
    types = ["job.completed", "job.failed", "job.cancelled", "job.failed"]
    assert await told(connection) == [(type, "ann", hook) for type in types]
    data = [orjson.loads(row["data"]) for row in await connection.fetch("SELECT data FROM events ORDER BY id")]
    assert [event["job_id"] for event in data] == [str(id) for id in ids]
    assert [event["error_code"] for event in data] == [None, "broken", "cancelled", "worker_lost"]


async def test_turns_that_do_not_end_the_job_are_no_events(core: Core, connection: Connection) -> None:
    await subscribe(connection, "*")
    await submit(core)
    played = await worker(core)
    await (await played.claim_one()).finish("again")
    await (await played.claim_one()).finish("transient", delay_seconds=0)
    await (await played.claim_one()).release()
    assert await told(connection) == []


async def test_ends_nobody_listens_to_leave_no_row(core: Core, connection: Connection) -> None:
    await subscribe(connection, "dump.*")
    await subscribe(connection, "job.failed")
    await subscribe(connection, "*", owner="bob")
    await submit(core)
    await (await (await worker(core)).claim_one()).finish()
    assert await connection.fetchval("SELECT count(*) FROM events") == 0


async def test_each_subscriber_is_told_of_its_owners_events_only(core: Core, connection: Connection) -> None:
    ann = await subscribe(connection, "job.completed")
    ops = await subscribe(connection, "*", owner="ops", all_owners=True)
    await subscribe(connection, "*", owner="bob")
    inactive = await subscribe(connection, "*")
    await connection.execute("UPDATE webhooks SET active = false WHERE id = $1", inactive)
    await submit(core, owner="ann")
    await submit(core, owner="eve")
    for attempt in await (await worker(core)).claim():
        await attempt.finish()
    assert sorted(map(str, await told(connection))) == sorted(
        map(str, [("job.completed", "ann", ann), ("job.completed", "ann", ops), ("job.completed", "eve", ops)])
    )


async def test_a_deliverys_own_end_is_no_event(core: Core, connection: Connection) -> None:
    await subscribe(connection, "*")
    await submit(core)
    await (await (await worker(core)).claim_one()).finish()
    link = core.link(internal=core.kinds["webhook"].internal)
    played = await worker(core)
    played.link = link
    delivery = await played.claim_one("webhook")
    assert await delivery.finish() == "accepted"
    assert await connection.fetchval("SELECT count(*) FROM events") == 1
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0


async def test_a_cleanups_end_is_no_event(core: Core, connection: Connection) -> None:
    await submit(core, "locking")
    played = await worker(core)
    await (await played.claim_one()).finish("permanent")
    await subscribe(connection, "*")
    await (await played.claim_one()).finish()
    assert await connection.fetchval("SELECT count(*) FROM events") == 0


async def test_a_refused_finish_tells_nobody(core: Core, connection: Connection) -> None:
    await subscribe(connection, "*")
    [id] = await submit(core)
    attempt = await (await worker(core)).claim_one()
    await core.cancel([id], actor="ann")
    before = await told(connection)
    await attempt.finish(events=[wire.Event(type="dump.ready", subject="x")])
    assert await told(connection) == before == [("job.cancelled", "ann", before[0][2])]


async def test_a_finish_that_is_turned_into_a_failure_tells_of_that_only(core: Core, connection: Connection) -> None:
    await subscribe(connection, "*")
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    await attempt.finish(
        events=[wire.Event(type="dump.ready", subject="x")], follow_ups=[wire.FollowUp(kind="nowhere", payload={})]
    )
    assert [type for type, _, _ in await told(connection)] == ["job.failed"]


async def test_a_batch_of_which_one_fails_tells_of_each_once(core: Core, connection: Connection) -> None:
    await subscribe(connection, "*")
    await submit(core, n=3)
    attempts = await (await worker(core)).claim()
    items = [
        wire.FinishItem(
            id=a.job.id,
            attempt_id=a.job.attempt_id,
            outcome="done",
            events=[wire.Event(type="own", subject="x")],
            follow_ups=[wire.FollowUp(kind="nowhere", payload={})] if n == 1 else [],
        )
        for n, a in enumerate(attempts)
    ]
    await core.link().finish(wire.Finish(items=items))
    types = sorted(type for type, _, _ in await told(connection))
    assert types == ["job.completed", "job.completed", "job.failed", "own", "own"]


async def test_one_in_a_transaction_that_fails_never_was(core: Core, connection: Connection) -> None:
    await subscribe(connection, "*")
    with contextlib.suppress(RuntimeError):
        async with core.db.transaction() as tx:
            await events.emit(core, tx, [events.OwnedEvent(NewEvent("a.b", "x"), "ann")])
            raise RuntimeError
    assert await connection.fetchval("SELECT count(*) FROM events") == 0
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0


async def test_what_was_recorded_is_counted_and_nothing_else(core: Core, connection: Connection) -> None:
    await subscribe(connection, "job.failed")
    await submit(core, n=2)
    done, failed = await (await worker(core)).claim(limit=2)
    await done.finish(events=[wire.Event(type="thing.made", subject="thing:1")])
    await failed.finish("permanent")
    with contextlib.suppress(RuntimeError):
        async with core.db.transaction() as tx:
            await events.emit(core, tx, [events.OwnedEvent(NewEvent("thing.lost", "thing:2"), "ann")])
            raise RuntimeError
    counted = {type: core.metrics.events(type)._value.get() for (type,) in core.metrics.events.known()}
    assert counted == {"thing.made": 1, "job.failed": 1}


async def test_a_domain_event_is_kept_though_nobody_listens(core: Core, connection: Connection) -> None:
    async with core.db.transaction() as tx:
        await events.emit(core, tx, [events.OwnedEvent(NewEvent("a.b", "x", {"n": 1}), "ann")])
    [row] = await connection.fetch("SELECT * FROM events")
    assert (row["type"], row["subject"], row["owner"], orjson.loads(row["data"])) == ("a.b", "x", "ann", {"n": 1})


async def test_versions_of_a_subject_grow(core: Core, connection: Connection, clock: DatabaseClock) -> None:
    for _ in range(3):
        async with core.db.transaction() as tx:
            await events.emit(core, tx, [events.OwnedEvent(NewEvent("a.b", "x"), "ann")])
        await clock.advance(seconds=1)
    versions = [row["version"] for row in await connection.fetch("SELECT version FROM events ORDER BY id")]
    assert versions == sorted(set(versions))


@pytest.mark.parametrize("end", ["finish", "cancel", "rescue"])
async def test_many_ends_with_many_subscribers(
    core: Core, clock: DatabaseClock, connection: Connection, end: str
) -> None:
    """More deliveries than one submission takes: refusing them would undo the ends, for ever."""
    hooks = [await subscribe(connection, "job.*") for _ in range(3)]
    ids = await submit(core, n=400)
    attempts = await (await worker(core)).claim(limit=400)
    if end == "finish":
        items = [wire.FinishItem(id=a.job.id, attempt_id=a.job.attempt_id, outcome="done") for a in attempts]
        answer = await core.link().finish(wire.Finish(items=items))
        assert {verdict.verdict for verdict in answer.verdicts} == {"accepted"}
    elif end == "cancel":
        assert set((await core.cancel(ids, actor="ann")).values()) == {"cancelled"}
    else:
        await connection.execute("UPDATE kinds SET loss_limit = 0")
        await served(core, clock, seconds=70)
        assert (await rescuing.rescue(core)).failed == 0
    deliveries = await told(connection)
    assert len(deliveries) == 1_200
    assert {hook for _, _, hook in deliveries} == set(hooks)
    assert await connection.fetchval("SELECT count(DISTINCT subject) FROM events") == 400
