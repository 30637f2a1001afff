"""A key of a retry or of a schedule's run is kept in the transaction of its work: both are there, or neither."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import asyncpg
import pytest

from paddock.jobs import schedules
from paddock.jobs.core import Core, IdempotencyKey
from paddock.jobs.errors import Draining, LockHeld, Refused
from paddock.jobs.model import Job
from paddock.jobs.schedules import NewSchedule
from tests.playing import submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Ask: TypeAlias = Callable[[IdempotencyKey | None], Awaitable[Job]]

PAYLOAD = {"lock": "table:t"}
MADE = "SELECT (SELECT count(*) FROM jobs), (SELECT count(*) FROM idempotency_keys), (SELECT count(*) FROM audit_log)"
FAILING = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE ''the disk is full''; END';
CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON {table} DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION refuse();
"""


def key(body: bytes = b"1") -> IdempotencyKey:
    return IdempotencyKey("ann", "POST /api/it", "k", body)


async def prepare_retry(core: Core) -> Ask:
    [old] = await submit(core, "locking", payload=PAYLOAD)
    played = await worker(core)
    await (await played.claim_one()).finish("permanent")
    await (await played.claim_one()).finish()  # its cleanup
    return lambda idempotency: core.retry(old, actor="ann", idempotency=idempotency)


async def prepare_run(core: Core) -> Ask:
    new = NewSchedule(name="s", kind="locking", owner="ann", every=timedelta(hours=1), payload=PAYLOAD)
    await schedules.create(core, new, actor="ann")
    return lambda idempotency: schedules.run(core, "s", actor="ann", idempotency=idempotency)


@pytest.fixture(params=[prepare_retry, prepare_run])
async def ask(request: pytest.FixtureRequest, core: Core) -> Ask:
    asked: Ask = await request.param(core)
    return asked


async def end_all(core: Core) -> None:
    for attempt in await (await worker(core)).claim():
        await attempt.finish(result=3)


async def test_a_repeat_answers_the_same_job_in_its_present_state(core: Core, ask: Ask) -> None:
    first = await ask(key())
    assert (await ask(key())).id == first.id
    await end_all(core)
    archived = await ask(key())
    assert (archived.id, archived.status, archived.result) == (first.id, "completed", 3)


async def test_another_body_is_refused(ask: Ask) -> None:
    await ask(key())
    with pytest.raises(Refused) as refused:
        await ask(key(b"2"))
    assert (refused.value.code, refused.value.status) == ("idempotency_key_reused", 422)


async def test_many_at_once_make_one(connection: Connection, ask: Ask) -> None:
    answers = await asyncio.gather(*(ask(key()) for _ in range(6)))
    assert len({job.id for job in answers}) == 1
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 1


@pytest.mark.parametrize("table", ["jobs", "idempotency_keys"])
async def test_a_commit_that_fails_leaves_neither_the_job_nor_the_key(
    connection: Connection, ask: Ask, table: str
) -> None:
    before = await connection.fetchrow(MADE)
    await connection.execute(FAILING.format(table=table))
    with pytest.raises(asyncpg.RaiseError):
        await ask(key())
    assert await connection.fetchrow(MADE) == before

    await connection.execute("DROP FUNCTION refuse CASCADE")
    made = await ask(key())
    assert await connection.fetchval("SELECT job_ids FROM idempotency_keys") == [made.id]
    assert await connection.fetchval("SELECT id FROM jobs") == made.id


async def test_a_refusal_is_not_remembered(core: Core, ask: Ask) -> None:
    await submit(core, "locking", payload=PAYLOAD)
    with pytest.raises(LockHeld):
        await ask(key())
    await end_all(core)
    assert (await ask(key(b"2"))).status == "pending"


async def test_a_repeat_is_answered_in_drain_mode_and_a_new_key_is_not_spent(core: Core, ask: Ask) -> None:
    await core.drain(True, actor="ops")
    with pytest.raises(Draining):
        await ask(key())
    await core.drain(False, actor="ops")
    first = await ask(key())
    await core.drain(True, actor="ops")
    assert (await ask(key())).id == first.id


async def test_a_job_that_has_left_the_history_is_not_made_again(core: Core, connection: Connection, ask: Ask) -> None:
    await ask(key())
    await end_all(core)
    await connection.execute("DELETE FROM job_history WHERE status = 'completed' AND cleanup_of IS NULL")
    with pytest.raises(Refused) as refused:
        await ask(key())
    assert (refused.value.code, refused.value.status) == ("not_found", 404)
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 0
