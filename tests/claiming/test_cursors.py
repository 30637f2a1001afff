"""Cursors make claims cheap and may never hide a job for good: wake-ups lower them, a sweep looks without them."""

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg

from paddock.jobs.core import Core
from paddock.jobs.model import NewJob
from tests.conftest import DatabaseClock
from tests.playing import submit, until, worker


async def pass_by(core: Core, clock: DatabaseClock) -> None:
    """Moves the cursor of (plain, 3) past now."""
    await clock.advance(seconds=10)
    await submit(core)
    attempt = await (await worker(core, "passer-by")).claim_one()
    await attempt.finish()
    assert core.claims.cursors.reached["plain", 3] > clock.at - timedelta(seconds=5)


async def insert_behind(core: Core, clock: DatabaseClock) -> None:
    """As if committed just now by a process that died before it could tell anyone."""
    await core.db.pool("durable").execute(
        "INSERT INTO jobs (id, kind, status, priority, due_at, owner, payload, created_at)"
        " VALUES (gen_random_uuid(), 'plain', 'pending', 3, $1, 'ann', '{}', $1)",
        clock.at - timedelta(seconds=9),
    )


async def test_a_wake_up_lowers_the_cursor_to_a_late_commit(core: Core, clock: DatabaseClock) -> None:
    async with core.db.transaction() as tx:
        [late] = await core.enqueue(tx, [NewJob("plain", {})])
        await pass_by(core, clock)
    assert (await (await worker(core)).claim_one()).id == late


async def test_a_late_commit_while_a_claim_is_under_way(core: Core, clock: DatabaseClock) -> None:
    """The claim does not see it and must not move the cursor past it when it comes back."""
    fetch = core.db.fetch
    late_tx = core.db.transaction()
    tx = await late_tx.__aenter__()
    [late] = await core.enqueue(tx, [NewJob("plain", {})])
    await clock.advance(seconds=10)
    await submit(core)

    async def commits_meanwhile(statement: Any, *arguments: object) -> Any:
        rows = await fetch(statement, *arguments)
        if statement.name == "claim_jobs":
            await late_tx.__aexit__(None, None, None)
        return rows

    played = await worker(core)
    core.db.fetch = commits_meanwhile  # type: ignore[method-assign]
    await played.claim_one()
    core.db.fetch = fetch  # type: ignore[method-assign]
    assert (await played.claim_one()).id == late


async def test_the_sweep_finds_a_job_whose_wake_up_was_lost(core: Core, clock: DatabaseClock) -> None:
    await pass_by(core, clock)
    played = await worker(core)
    claim = asyncio.create_task(played.claim(wait=30))
    await until(lambda: any(vars(waiter.woken)["_waiters"] for waiter in core.claims.waiters))
    await insert_behind(core, clock)
    assert not claim.done()
    await core.claims.sweep()
    assert len(await asyncio.wait_for(claim, 20)) == 1


async def test_the_sweep_finds_it_though_nobody_waits(core: Core, clock: DatabaseClock) -> None:
    """Workers that ask and never wait must not starve it for ever."""
    await pass_by(core, clock)
    await insert_behind(core, clock)
    played = await worker(core)
    assert await played.claim() == []
    await core.claims.sweep()
    assert len(await played.claim()) == 1


async def test_the_sweep_is_rare(core: Core, clock: DatabaseClock) -> None:
    await pass_by(core, clock)
    await core.claims.sweep()
    await pass_by(core, clock)
    await insert_behind(core, clock)
    await core.claims.sweep()
    assert await (await worker(core)).claim() == []


async def test_a_claim_that_was_rolled_back_leaves_nothing_behind_the_cursor_for_good(
    core: Core, clock: DatabaseClock, dsn: str
) -> None:
    """Its rows were skipped by a claim that went on and moved the cursor."""
    first, second = await submit(core, n=2)
    await core.db.pool("durable").execute("UPDATE jobs SET due_at = due_at + interval '5 s' WHERE id = $1", second)
    await clock.advance(seconds=10)
    other = await asyncpg.connect(dsn)
    rollback = other.transaction()
    await rollback.start()
    await other.execute("SELECT FROM jobs WHERE id = $1 FOR UPDATE", first)
    played = await worker(core)
    assert (await played.claim_one()).id == second
    await rollback.rollback()
    await other.close()
    await core.claims.sweep()
    assert (await played.claim_one()).id == first


async def test_after_a_gap_in_listening_nothing_is_believed(core: Core, clock: DatabaseClock) -> None:
    await pass_by(core, clock)
    await insert_behind(core, clock)
    core.claims.forget_cursors()
    assert len(await (await worker(core)).claim()) == 1


async def test_cursors_do_not_grow_with_jobs(core: Core, clock: DatabaseClock) -> None:
    for _ in range(3):
        await pass_by(core, clock)
    assert set(core.claims.cursors.reached) == {("plain", 3)}
    assert not core.claims.cursors.flights
    assert not core.claims.waiters
