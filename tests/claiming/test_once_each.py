"""No two claims get the same job, a repeated one gets the same again, and a serial kind runs one at a time."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from uuid import uuid4

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from paddock.jobs import wire
from paddock.jobs.core import Core, open_core
from paddock.metrics import Metrics
from tests.playing import read, submit, until, worker

HOLD_UP = """
CREATE FUNCTION test_hold_up() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(1); RETURN NULL; END';
CREATE TRIGGER test_hold_up BEFORE UPDATE ON jobs EXECUTE FUNCTION test_hold_up();
"""


async def test_many_claims_at_once_take_each_job_once(core: Core) -> None:
    ids = await submit(core, n=40)
    workers = [await worker(core, f"w{n}") for n in range(8)]
    claims = await asyncio.gather(*(played.claim(limit=7) for played in workers for _ in range(2)))
    taken = [attempt.id for claim in claims for attempt in claim]
    assert sorted(taken) == sorted(ids)


async def test_a_claim_skips_what_another_is_taking_instead_of_waiting(core: Core, dsn: str) -> None:
    first, second = await submit(core, n=2)
    other = await asyncpg.connect(dsn)
    try:
        async with other.transaction():
            await other.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", first)
            assert (await (await worker(core)).claim_one()).id == second
    finally:
        await other.close()


async def test_a_repeated_claim_id_returns_the_same_attempts(core: Core) -> None:
    await submit(core, n=5)
    played, claim_id = await worker(core), uuid4()
    first = await played.claim(limit=2, claim_id=claim_id)
    again = await played.claim(limit=2, claim_id=claim_id)
    assert [a.job.attempt_id for a in again] == [a.job.attempt_id for a in first]
    assert len(await played.claim(limit=10)) == 3


async def test_a_repeated_claim_id_is_answered_though_there_is_no_room_any_more(core: Core) -> None:
    """A worker that stops asks with no room for what an answer it hung up on may have brought."""
    await submit(core, n=2)
    played, claim_id = await worker(core), uuid4()
    first = await played.claim(limit=1, claim_id=claim_id)
    again = await played.claim(limit=0, submitted_limit=0, claim_id=claim_id)
    assert [a.job.attempt_id for a in again] == [a.job.attempt_id for a in first]


async def test_a_repeated_claim_of_certain_jobs_returns_the_same_attempts(core: Core) -> None:
    [id] = await submit(core)
    played, claim_id = await worker(core), uuid4()
    [first] = await played.claim(claim_id=claim_id, only=[id])
    [again] = await played.claim(claim_id=claim_id, only=[id])
    assert again.job.attempt_id == first.job.attempt_id


@pytest.fixture
async def held_up(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """Holds up every change of jobs half way: what it sees is settled, what it does is not done."""
    other = await asyncpg.connect(dsn)
    await other.execute(HOLD_UP)
    await other.execute("SELECT pg_advisory_lock(1)")
    yield other
    await other.execute("DROP FUNCTION test_hold_up CASCADE")
    await other.close()


@pytest.mark.parametrize("certain", [False, True], ids=["any", "only"])
async def test_claims_at_once_with_one_claim_id_get_the_same_jobs(
    core: Core, held_up: "asyncpg.Connection[asyncpg.Record]", certain: bool
) -> None:
    """The worker repeats a claim whose answer is late, through another replica, and both are at work."""
    ids = await submit(core, n=6)
    played, claim_id = await worker(core), uuid4()
    claims = [
        asyncio.create_task(played.claim(limit=2, claim_id=claim_id, only=ids if certain else [])) for _ in range(3)
    ]
    async with asyncio.timeout(60):
        while await held_up.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted") < len(claims):  # noqa: ASYNC110  in the server
            await asyncio.sleep(0.01)
    await held_up.execute("SELECT pg_advisory_unlock(1)")
    first, *others = [[a.job.attempt_id for a in await claim] for claim in claims]
    assert len(first) == 2
    assert others == [first, first]
    assert len(await played.claim(limit=10)) == 4, "what the others had in hand is free again"


async def test_two_that_wait_with_one_claim_id_get_the_same_jobs(core: Core, dsn: str) -> None:
    """Through two replicas: in one the first would be sent away."""
    played, claim_id = await worker(core), uuid4()
    async with open_core(dsn, core.kinds, metrics=Metrics(CollectorRegistry())) as replica:
        elsewhere = replace(played, link=replica.link())
        claims = [asyncio.create_task(one.claim(claim_id=claim_id, limit=1, wait=30)) for one in (played, elsewhere)]
        await until(lambda: bool(core.claims.waiters) and bool(replica.claims.waiters))
        await submit(core, n=2)
        replica.claims.forget_cursors()
        [one], [two] = [await claim for claim in claims]
    assert one.job.attempt_id == two.job.attempt_id


async def test_a_claim_id_whose_jobs_were_given_back_takes_others(core: Core) -> None:
    await submit(core, n=2)
    played, claim_id = await worker(core), uuid4()
    [first] = await played.claim(limit=1, claim_id=claim_id)
    await first.finish()
    [second] = await played.claim(limit=1, claim_id=claim_id)
    assert second.id != first.id


async def test_the_same_claim_id_of_another_session_is_another_claim(core: Core) -> None:
    await submit(core, n=2)
    claim_id = uuid4()
    [one] = await (await worker(core)).claim(limit=1, claim_id=claim_id)
    [two] = await (await worker(core)).claim(limit=1, claim_id=claim_id)
    assert one.id != two.id


async def test_every_claim_has_a_token_of_its_own(core: Core) -> None:
    await submit(core)
    played = await worker(core)
    first = await played.claim_one()
    await first.release()
    second = await played.claim_one()
    assert (first.id, second.job.turn_count) == (second.id, 2)
    assert first.job.attempt_id != second.job.attempt_id


class TestSerialKinds:
    async def test_at_most_one_is_claimed(self, core: Core) -> None:
        await submit(core, "serial", n=3)
        played = await worker(core)
        [first] = await played.claim("serial", limit=10)
        assert await played.claim("serial", limit=10) == []
        await first.finish()
        assert len(await played.claim("serial", limit=10)) == 1

    async def test_two_claims_at_once_get_one_between_them_and_the_rest_of_their_work(self, core: Core) -> None:
        await submit(core, "serial", n=4)
        await submit(core, "plain", n=4)
        workers = [await worker(core, f"w{n}") for n in range(4)]
        claims = await asyncio.gather(*(played.claim("serial", "plain", limit=10) for played in workers))
        taken = [attempt.job.kind for claim in claims for attempt in claim]
        assert sorted(taken) == ["plain"] * 4 + ["serial"]

    @pytest.mark.parametrize("own_slots", [None, 5])
    async def test_a_submitted_one_and_a_pending_one_are_not_taken_together(
        self, core: Core, own_slots: int | None
    ) -> None:
        """Both in one statement would violate the index each time: nobody would get anything, for ever."""
        await submit(core, "serial")
        played = await worker(core)
        polling = await played.claim_one("serial")
        await polling.finish("again", waiting_on="query")
        await submit(core, "serial")
        [other] = await submit(core, "plain")
        taken = await played.claim(limit=10, submitted_limit=own_slots)
        assert {attempt.id for attempt in taken} == {polling.id, other}

    async def test_a_cleanup_of_one_counts_as_one(self, core: Core) -> None:
        await core.db.pool("durable").execute("UPDATE kinds SET has_cleanup = true WHERE name = 'serial'")
        [id] = await submit(core, "serial")
        played = await worker(core)
        attempt = await played.claim_one("serial")
        await core.cancel([id], actor="ann")
        await attempt.release()
        await submit(core, "serial", priority=1)
        [cleanup] = await played.claim("serial")
        assert cleanup.job.cleanup_of == id
        assert await played.claim("serial") == []


async def test_only_the_jobs_named_with_their_cleanups_and_follow_ups(core: Core) -> None:
    [id] = await submit(core)
    await submit(core, n=3)
    played = await worker(core)
    [attempt] = await played.claim(only=[id])
    assert attempt.id == id
    await attempt.finish(follow_ups=[wire.FollowUp(kind="other", payload={})])
    [follow_up] = await played.claim(only=[id])
    assert follow_up.job.parent_id == id
    await follow_up.finish()
    message = wire.Claim(session=played.session, claim_id=uuid4(), kinds=["plain", "other"], only=[id])
    assert not (await played.link.claim(message)).open
    assert (await read(core, id)).status == "completed"
