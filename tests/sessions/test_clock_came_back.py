"""The database's clock was ahead and came back: nothing waits until it has come there again."""

from datetime import timedelta
from typing import TypeAlias

import asyncpg

from paddock.config import Config
from paddock.doctor.findings import Level
from paddock.doctor.on_database import clock as clock_check
from paddock.jobs import rescuing, schedules
from paddock.jobs.core import Core
from paddock.jobs.schedules import NewSchedule
from tests.conftest import DatabaseClock
from tests.playing import read, served, submit, worker

Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
DAY = timedelta(days=1)


async def levels(core: Core) -> list[Level]:
    return [finding.level async for finding in clock_check(core, Config()) if finding.check == "clock"]


async def test_what_dead_workers_held_is_given_back(core: Core, clock: DatabaseClock) -> None:
    [before, ahead] = await submit(core, n=2)
    early = await (await worker(core, "early")).claim_one()
    await clock.advance(DAY)
    await rescuing.rescue(core)
    late = await worker(core, "late")
    await late.claim_one()
    await late.beat()
    await clock.advance(-DAY)

    await served(core, clock, seconds=120)

    assert early.id == before
    assert [(await read(core, id)).status for id in (before, ahead)] == ["pending", "pending"]


async def test_what_was_made_due_by_it_is_due_now(core: Core, clock: DatabaseClock) -> None:
    [asked_for] = await submit(core, "other", run_at=clock.at + timedelta(hours=3))
    [retried] = await submit(core)
    [begun_before] = await submit(core)
    running = await (await worker(core, "early")).claim_one("plain")
    await clock.advance(DAY)
    await (await (await worker(core)).claim_one("plain")).finish("transient", delay_seconds=30)
    await running.finish("transient", delay_seconds=30)
    [submitted] = await submit(core)
    await rescuing.rescue(core)
    await clock.advance(-DAY)

    await rescuing.rescue(core)

    assert (await read(core, submitted)).due_at == clock.at
    for failed in (retried, begun_before):
        assert (await read(core, failed)).due_at == clock.at + timedelta(seconds=30)
    assert (await read(core, asked_for)).due_at == clock.at + timedelta(hours=3), "nobody moves what a person asked for"


async def test_schedules_run_at_their_next_time(core: Core, clock: DatabaseClock) -> None:
    await schedules.create(
        core, NewSchedule(name="often", kind="plain", owner="ann", every=timedelta(minutes=5)), actor="a"
    )
    await schedules.create(core, NewSchedule(name="daily", kind="other", owner="ann", cron="30 2 * * *"), actor="a")
    first = await schedules.get(core.db, "daily")
    await clock.advance(3 * DAY)
    assert await core.tick() == 2
    await clock.advance(-3 * DAY)

    await rescuing.rescue(core)

    often, daily = await schedules.get(core.db, "often"), await schedules.get(core.db, "daily")
    assert first is not None
    assert often is not None
    assert daily is not None
    assert (often.next_at, often.last_at) == (clock.at + timedelta(minutes=5), clock.at)
    assert daily.next_at == first.next_at


async def test_times_that_lie_ahead_by_right_stay(core: Core, clock: DatabaseClock) -> None:
    [later] = await submit(core, delay=timedelta(hours=1))
    before = await schedules.create(
        core, NewSchedule(name="often", kind="plain", owner="ann", every=timedelta(minutes=5)), actor="a"
    )
    await clock.advance(seconds=-3)
    await rescuing.rescue(core)
    await served(core, clock, seconds=60)
    assert (await read(core, later)).due_at == clock.at + timedelta(minutes=59)
    after = await schedules.get(core.db, "often")
    assert after is not None
    assert before.next_at is not None
    assert after.next_at == before.next_at - timedelta(seconds=3)


async def test_doctor_knows_until_they_are_pulled_back(core: Core, connection: Connection) -> None:
    assert await levels(core) == ["ok"]
    await connection.execute("UPDATE service SET resumed_at = paddock_now() + interval '1 day'")
    assert "broken" in await levels(core)
    await rescuing.rescue(core)
    assert await levels(core) == ["ok"]
