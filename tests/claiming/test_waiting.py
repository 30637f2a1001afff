"""A waiting worker gets a new or newly due job in milliseconds, and holds no connection meanwhile.

The waits here are long and the assertions wait for conditions: a wake-up that is lost makes a test time out."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry

from paddock.jobs import wire
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import NewJob
from paddock.metrics import Metrics
from tests.conftest import DatabaseClock
from tests.kinds import TEST_KINDS
from tests.playing import Attempt, PlayedWorker, submit, until, worker

# Less than they wait for, and nobody sweeps here: what is answered by then was woken.
SOON = 15


@pytest.fixture
async def second_core(dsn: str, core: Core) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds(TEST_KINDS), metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


async def waiting(core: Core, n: int = 1) -> None:
    """Until n claims sleep: they have looked, found nothing, and hold no connection."""
    await until(lambda: sum(bool(vars(w.woken)["_waiters"]) for w in core.claims.waiters) >= n)


def start(played: PlayedWorker, *kinds: str, **fields: Any) -> "asyncio.Task[list[Attempt]]":
    return asyncio.create_task(played.claim(*kinds, wait=30, **fields))


async def soon(task: "asyncio.Task[list[Attempt]]") -> list[Attempt]:
    return await asyncio.wait_for(task, SOON)


async def test_a_new_job_wakes_it(core: Core) -> None:
    claim = start(await worker(core))
    await waiting(core)
    [id] = await submit(core)
    assert [attempt.id for attempt in await soon(claim)] == [id]


async def test_how_long_the_wake_up_took_is_measured(core: Core, clock: DatabaseClock) -> None:
    played = await worker(core)
    claim = start(played)
    await waiting(core)
    await submit(core, delay=timedelta(seconds=20))
    await clock.advance(seconds=27)
    await submit(core)
    assert len(await soon(claim)) == 2
    measured = core.metrics.registry.get_sample_value
    assert measured("paddock_wakeup_latency_seconds_count") == 2
    assert measured("paddock_wakeup_latency_seconds_sum") == 7, "one was due 7 s ago, the other just now"
    await submit(core)
    await played.claim(wait=30)
    assert measured("paddock_wakeup_latency_seconds_count") == 2, "a job that was there already wakes nobody"


async def test_a_job_enqueued_in_a_callers_transaction_wakes_it_after_the_commit(core: Core) -> None:
    claim = start(await worker(core))
    await waiting(core)
    async with core.db.transaction() as tx:
        [id] = await core.enqueue(tx, [NewJob("plain", {})])
        await asyncio.sleep(0.05)
        assert not claim.done()
    assert [attempt.id for attempt in await soon(claim)] == [id]


async def test_a_job_that_becomes_due_while_it_waits(core: Core) -> None:
    claim = start(await worker(core))
    await waiting(core)
    await submit(core, delay=timedelta(milliseconds=200))
    assert len(await soon(claim)) == 1


async def test_a_job_that_was_there_and_becomes_due(core: Core) -> None:
    await submit(core, delay=timedelta(milliseconds=300))
    assert len(await soon(start(await worker(core)))) == 1


@pytest.mark.parametrize("why", ["its lease is over", "it is quiet"])
async def test_a_worker_that_may_take_nothing_swallows_no_wake_up(core: Core, clock: DatabaseClock, why: str) -> None:
    """A frozen worker's call stays open, and it waits longest: it is the first to be woken."""
    barred = await worker(core)
    first = start(barred)
    await waiting(core)
    if why == "it is quiet":
        await core.quiet(barred.session, actor="ops")  # type: ignore[arg-type]
    else:
        await clock.advance(seconds=61)
    second = start(await worker(core))
    await waiting(core, 2)
    [id] = await submit(core)
    assert [attempt.id for attempt in await soon(second)] == [id]

    if why == "it is quiet":
        await core.quiet(barred.session, actor="ops", quiet=False)  # type: ignore[arg-type]
    else:
        await barred.beat()
    [id] = await submit(core)
    assert [attempt.id for attempt in await soon(first)] == [id]


async def test_a_released_job(core: Core) -> None:
    await submit(core)
    attempt = await (await worker(core)).claim_one()
    claim = start(await worker(core))
    await waiting(core)
    await attempt.release()
    assert len(await soon(claim)) == 1


async def test_a_job_somebody_makes_run_now(core: Core) -> None:
    [id] = await submit(core, delay=timedelta(seconds=40))
    claim = start(await worker(core))
    await waiting(core)
    await core.run_now(id, actor="ann")
    assert [attempt.id for attempt in await soon(claim)] == [id]


async def test_a_job_retried_by_a_person(core: Core) -> None:
    [id] = await submit(core)
    await (await (await worker(core)).claim_one()).finish("permanent")
    claim = start(await worker(core))
    await waiting(core)
    again = await core.retry(id, actor="ann")
    assert [attempt.id for attempt in await soon(claim)] == [again.id]


async def test_a_kind_that_is_resumed(core: Core) -> None:
    await core.pause("plain", actor="ops")
    await submit(core)
    claim = start(await worker(core))
    await waiting(core)
    await core.resume("plain", actor="ops")
    assert len(await soon(claim)) == 1


async def test_a_cleanup_whose_attempt_has_stopped(core: Core) -> None:
    [id] = await submit(core, "locking")
    attempt = await (await worker(core)).claim_one()
    await core.cancel([id], actor="ann")
    claim = start(await worker(core))
    await waiting(core)
    await attempt.release()
    [cleanup] = await soon(claim)
    assert cleanup.job.cleanup_of == id


@pytest.mark.parametrize("outcome", ["done", "again", "permanent", "transient"])
async def test_the_next_of_a_serial_kind_when_the_one_before_ends_its_turn(core: Core, outcome: str) -> None:
    [_, second] = await submit(core, "serial", n=2)
    first = await (await worker(core)).claim_one("serial")
    claim = start(await worker(core))
    await waiting(core)
    await first.finish(outcome, delay_seconds=3600)
    assert [attempt.id for attempt in await soon(claim)] == [second]


async def test_a_cancel_tells_the_waiting_worker_what_it_lost(core: Core) -> None:
    [id] = await submit(core)
    played = await worker(core)
    attempt = await played.claim_one()
    message = wire.Claim(session=played.session, claim_id=uuid4(), kinds=["plain"], wait_seconds=30)
    claim = asyncio.create_task(played.link.claim(message))
    await waiting(core)
    await core.cancel([id], actor="ann")
    answer = await asyncio.wait_for(claim, SOON)
    assert (answer.jobs, answer.lost) == ([], [attempt.job.attempt_id])


async def test_jobs_submitted_together_reach_several_workers(core: Core) -> None:
    claims = [start(await worker(core, f"w{n}"), limit=1) for n in range(3)]
    await waiting(core, 3)
    await submit(core, n=3)
    assert [len(await soon(claim)) for claim in claims] == [1, 1, 1]


async def test_a_wake_up_goes_to_one_who_can_take_the_job(core: Core) -> None:
    full = start(await worker(core, "full"), "plain", limit=5, limits={"plain": 0})
    submitted_only = start(await worker(core, "submitted only"), "plain", limit=0, submitted_limit=5)
    await waiting(core, 2)
    able = start(await worker(core, "able"), "plain")
    await waiting(core, 3)
    await submit(core)
    assert len(await soon(able)) == 1
    for claim in (full, submitted_only):
        assert not claim.done()
        claim.cancel()


async def test_the_wake_up_of_one_that_hung_up_goes_to_another(core: Core) -> None:
    """It was woken, and its line is cut before it has looked."""
    gone = start(await worker(core, "gone"))
    await waiting(core)
    stays = start(await worker(core, "stays"))
    await waiting(core, 2)
    told = core.claims.wake

    def cut(wakes: Any) -> None:
        told(wakes)
        gone.cancel()

    core.claims.wake = cut  # type: ignore[method-assign]
    await submit(core)
    assert len(await soon(stays)) == 1


async def test_a_wake_up_during_the_last_look_goes_to_another(core: Core) -> None:
    """A job commits after the snapshot of a claim that leaves with another job: who still waits must hear of it."""
    looking, go_on = asyncio.Event(), asyncio.Event()
    first = await worker(core, "first")
    look = core.claims._look

    async def slow(message: wire.Claim, *arguments: Any) -> wire.Claimed:
        claimed = await look(message, *arguments)
        if message.session == first.session and claimed.jobs:
            looking.set()
            await go_on.wait()
        return claimed

    core.claims._look = slow  # type: ignore[method-assign,assignment]
    leaving = start(first)
    await waiting(core)
    stays = start(await worker(core, "stays"))
    await waiting(core, 2)
    await submit(core)
    await looking.wait()
    await submit(core)
    go_on.set()
    assert len(await soon(leaving)) == 1
    assert len(await soon(stays)) == 1


@pytest.fixture
def sought(core: Core) -> list[set[str]]:
    """The kinds that each claim looked for."""
    found, fetch = [], core.db.fetch

    async def noted(statement: Any, *arguments: Any) -> Any:
        if statement.name == "claim_jobs":
            found.append(set(arguments[2]))
        return await fetch(statement, *arguments)

    core.db.fetch = noted  # type: ignore[method-assign]
    return found


async def test_woken_for_a_kind_it_looks_for_no_other(core: Core, sought: list[set[str]]) -> None:
    claim = start(await worker(core), "plain", "other")
    await waiting(core)
    await submit(core)
    assert len(await soon(claim)) == 1
    assert sought == [{"plain", "other"}, {"plain"}]


async def test_woken_for_two_kinds_before_it_looks_it_looks_for_both(core: Core, sought: list[set[str]]) -> None:
    claim = start(await worker(core), "plain", "other")
    await waiting(core)
    async with core.db.transaction() as tx:
        ids = await core.enqueue(tx, [NewJob("plain", {}), NewJob("other", {})])
    assert sorted(attempt.id for attempt in await soon(claim)) == sorted(ids)
    assert sought[1:] == [{"plain", "other"}]


async def test_what_becomes_due_beside_the_wake_up_for_another_kind_is_seen(
    core: Core, clock: DatabaseClock, sought: list[set[str]]
) -> None:
    """It was enqueued long ago and nobody wakes the worker for it: the worker knows by itself when it is due, and must
    not forget that when it is woken for something else that another worker takes."""
    [late] = await submit(core, "other", delay=timedelta(seconds=40))
    claim = start(await worker(core), "plain", "other")
    await waiting(core)
    [waiter] = core.claims.waiters
    await clock.advance(seconds=41)
    waiter.look_by = 0.0
    waiter.wakes.add(("plain", 3))
    waiter.woken.set()
    assert [attempt.id for attempt in await soon(claim)] == [late]
    assert sought == [{"plain", "other"}, {"plain"}, {"plain", "other"}]


async def test_no_connection_is_held_while_waiting(dsn: str) -> None:
    async with open_core(dsn, Kinds(TEST_KINDS), metrics=Metrics(CollectorRegistry()), durable=1, relaxed=1) as core:
        claims = [start(await worker(core, f"w{n}")) for n in range(20)]
        await waiting(core, 20)
        [id] = await submit(core)
        async with asyncio.timeout(SOON):
            done, _ = await asyncio.wait(claims, return_when=asyncio.FIRST_COMPLETED)
        assert [attempt.id for claim in done for attempt in claim.result()] == [id]
        for claim in claims:
            claim.cancel()


async def test_it_is_answered_empty_when_the_control_plane_stops(core: Core) -> None:
    claim = start(await worker(core))
    await waiting(core)
    core.claims.close()
    assert await soon(claim) == []


async def test_it_is_answered_empty_when_its_time_is_up(core: Core) -> None:
    claim = asyncio.create_task((await worker(core)).claim(wait=0.1))
    assert await soon(claim) == []
    assert not core.claims.waiters


async def test_the_same_question_again_answers_the_first_asker(core: Core) -> None:
    """Its line broke; it must not take the job that the second asker waits for."""
    played, claim_id = await worker(core), uuid4()
    first = start(played, claim_id=claim_id)
    await waiting(core)
    second = start(played, claim_id=claim_id)
    assert await soon(first) == []
    [id] = await submit(core)
    assert [attempt.id for attempt in await soon(second)] == [id]


async def test_delayed_jobs_share_timers(core: Core) -> None:
    claim = start(await worker(core))
    await waiting(core)
    await submit(core, n=500, delay=timedelta(milliseconds=400))
    await submit(core, n=500, delay=timedelta(milliseconds=400))
    assert len(core.claims.waiters.timers) <= 2
    assert len(await soon(claim)) == 10
    await until(lambda: not core.claims.waiters.timers)


class TestAcrossReplicas:
    async def test_a_kind_that_is_resumed(self, core: Core, second_core: Core) -> None:
        await core.pause("plain", actor="ops")
        [id] = await submit(core)
        claim = start(await worker(second_core))
        await waiting(second_core)
        await core.resume("plain", actor="ops")
        assert [attempt.id for attempt in await soon(claim)] == [id]

    async def test_a_new_job(self, core: Core, second_core: Core) -> None:
        claim = start(await worker(second_core))
        await waiting(second_core)
        [id] = await submit(core)
        assert [attempt.id for attempt in await soon(claim)] == [id]

    async def test_a_job_behind_the_others_cursor(self, core: Core, second_core: Core) -> None:
        played = await worker(second_core)
        async with core.db.transaction() as tx:
            # Due when its transaction began, committed long after that.
            [late] = await core.enqueue(tx, [NewJob("plain", {})])
            await asyncio.sleep(0.2)
            await submit(second_core)
            await played.claim_one()
            assert second_core.claims.cursors.reached
            claim = start(played)
            await waiting(second_core)
        assert [attempt.id for attempt in await soon(claim)] == [late]

    async def test_a_cancel(self, core: Core, second_core: Core) -> None:
        [id] = await submit(core)
        played = await worker(second_core)
        attempt = await played.claim_one()
        message = wire.Claim(session=played.session, claim_id=uuid4(), kinds=["plain"], wait_seconds=30)
        claim = asyncio.create_task(played.link.claim(message))
        await waiting(second_core)
        await core.cancel([id], actor="ann")
        assert (await asyncio.wait_for(claim, SOON)).lost == [attempt.job.attempt_id]
