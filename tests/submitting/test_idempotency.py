"""The same key and body make one job, whatever is lost or sent twice."""

import asyncio
from typing import TypeAlias

import asyncpg
import pytest

from paddock.jobs.core import Core, IdempotencyKey
from paddock.jobs.errors import Draining, LockHeld, Refused
from paddock.jobs.model import NewJob
from tests.conftest import DatabaseClock
from tests.playing import submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
PLAIN = NewJob("plain", {}, owner="ann")


def key(name: str = "k", *, owner: str = "ann", route: str = "POST /api/jobs", body: bytes = b"1") -> IdempotencyKey:
    return IdempotencyKey(owner, route, name, body)


async def test_a_repeat_answers_the_same_job_in_its_present_state(core: Core) -> None:
    first = await core.submit([PLAIN], idempotency=key())
    again = await core.submit([PLAIN], idempotency=key())
    assert (first.repeated, again.repeated) == (False, True)
    await (await (await worker(core)).claim_one()).finish(result=3)
    archived = await core.submit([PLAIN], idempotency=key())
    assert [job.id for job in archived.jobs] == [job.id for job in first.jobs]
    assert (archived.jobs[0].status, archived.jobs[0].result) == ("completed", 3)


async def test_many_at_once_make_one(core: Core, connection: Connection) -> None:
    for name in ("a", "b", "c"):
        answers = await asyncio.gather(*(core.submit([PLAIN, PLAIN], idempotency=key(name)) for _ in range(8)))
        assert len({tuple(job.id for job in answer.jobs) for answer in answers}) == 1
        assert all(len(answer.jobs) == 2 for answer in answers)
        assert [answer.repeated for answer in answers].count(False) == 1
    assert await connection.fetchval("SELECT count(*) FROM jobs") == 6


async def test_another_body_is_refused(core: Core) -> None:
    await core.submit([PLAIN], idempotency=key())
    with pytest.raises(Refused) as refused:
        await core.submit([PLAIN], idempotency=key(body=b"2"))
    assert (refused.value.code, refused.value.status) == ("idempotency_key_reused", 422)


@pytest.mark.parametrize("other", [key(owner="bob"), key(route="POST /api/jobs/batch"), key("l")])
async def test_a_key_counts_for_its_owner_and_route(core: Core, other: IdempotencyKey) -> None:
    first = await core.submit([PLAIN], idempotency=key())
    second = await core.submit([PLAIN], idempotency=other)
    assert first.jobs[0].id != second.jobs[0].id


async def test_a_refusal_is_not_remembered(core: Core) -> None:
    locking = NewJob("locking", {"lock": "t"})
    await submit(core, "locking", payload={"lock": "t"})
    with pytest.raises(LockHeld):
        await core.submit([locking], idempotency=key())
    await (await (await worker(core)).claim_one()).finish()
    assert not (await core.submit([locking], idempotency=key())).repeated


async def test_a_repeat_is_answered_in_drain_mode_and_a_new_key_is_not_spent(core: Core) -> None:
    first = await core.submit([PLAIN], idempotency=key())
    await core.drain(True, actor="ops")
    assert (await core.submit([PLAIN], idempotency=key())).jobs == first.jobs
    with pytest.raises(Draining):
        await core.submit([PLAIN], idempotency=key("new"))
    await core.drain(False, actor="ops")
    assert not (await core.submit([PLAIN], idempotency=key("new"))).repeated


async def test_a_repeat_whose_job_has_left_the_history_says_so(core: Core, connection: Connection) -> None:
    await core.submit([PLAIN], idempotency=key())
    await connection.execute("DELETE FROM jobs")
    with pytest.raises(Refused) as refusal:
        await core.submit([PLAIN], idempotency=key())
    assert (refusal.value.code, refusal.value.status) == ("not_found", 404)


async def test_one_whose_transaction_fails_leaves_the_key_to_the_next(core: Core, dsn: str) -> None:
    """The second waits for the first; when that one dies, it goes on as the first."""
    other = await asyncpg.connect(dsn)
    dying = other.transaction()
    await dying.start()
    await other.execute(
        "INSERT INTO idempotency_keys (owner, route, key, body_hash) VALUES ('ann', 'POST /api/jobs', 'k', '1')"
    )
    waiting = asyncio.create_task(core.submit([PLAIN], idempotency=key()))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done
    await dying.rollback()
    await other.close()
    assert not (await waiting).repeated


async def test_a_key_lives_for_a_day(core: Core, clock: DatabaseClock) -> None:
    first = await core.submit([PLAIN], idempotency=key())
    await clock.advance(minutes=60 * 24)
    assert (await core.submit([PLAIN], idempotency=key())).repeated
    await clock.advance(seconds=1)
    second = await core.submit([PLAIN], idempotency=key(body=b"another"))
    assert (second.repeated, second.jobs[0].id != first.jobs[0].id) == (False, True)
    assert (await core.submit([PLAIN], idempotency=key(body=b"another"))).jobs[0].id == second.jobs[0].id


async def test_many_at_once_when_it_has_just_expired(core: Core, clock: DatabaseClock) -> None:
    await core.submit([PLAIN], idempotency=key())
    await clock.advance(minutes=60 * 24 + 1)
    answers = await asyncio.gather(*(core.submit([PLAIN], idempotency=key()) for _ in range(6)))
    assert len({answer.jobs[0].id for answer in answers}) == 1
    assert [answer.repeated for answer in answers].count(False) == 1
