"""Partitions are made ahead, hold what they should, and go when their time is over; no row is ever missing."""

import asyncio
from datetime import UTC, date, datetime, timedelta

import pytest

from paddock.db.pool import Database
from paddock.jobs import partitions
from paddock.jobs.partitions import HISTORY, LOGS, TAGS, drop_expired, make_ahead
from tests.conftest import DatabaseClock
from tests.reading.rows import add_ended, run


async def count(db: Database, table: str) -> int:
    return int((await run(db, f"SELECT count(*) AS n FROM {table}"))[0]["n"])


async def names(db: Database, table: str) -> list[str]:
    rows = await run(
        db,
        "SELECT inhrelid::regclass::text AS name FROM pg_inherits WHERE inhparent = $1::text::regclass ORDER BY 1",
        table,
    )
    return [row["name"] for row in rows if not row["name"].endswith("_default")]


def test_weeks_begin_on_monday_and_days_at_midnight_utc() -> None:
    at = datetime(2026, 11, 15, 23, 59, tzinfo=UTC)  # a Sunday
    assert HISTORY.beginning(at) == date(2026, 11, 9)
    assert HISTORY.beginning(at + timedelta(minutes=1)) == date(2026, 11, 16)
    assert LOGS.beginning(at) == date(2026, 11, 15)


async def test_they_are_made_once_with_every_index_and_take_over_what_was_there(
    db: Database, clock: DatabaseClock
) -> None:
    await add_ended(db, 100)
    assert await make_ahead(db, HISTORY, clock.at) == 3
    assert await make_ahead(db, HISTORY, clock.at) == 0
    assert await make_ahead(db, LOGS, clock.at) == 4
    this_week = f"job_history_{HISTORY.beginning(clock.at):%Y%m%d}"
    assert (await count(db, this_week), await count(db, "job_history_default")) == (100, 0)
    indexes = "SELECT count(*) AS n FROM pg_indexes WHERE tablename = $1"
    assert await run(db, indexes, this_week) == await run(db, indexes, "job_history_default")
    await add_ended(db, 1)
    assert await count(db, this_week) == 101


async def test_tags_that_wait_in_the_default_move_and_are_noted_once(db: Database, clock: DatabaseClock) -> None:
    await add_ended(db, 50, tags=("a", "b"))
    [old] = await add_ended(db, 1, tags=("a",), ago="30 days")
    for what in (HISTORY, TAGS):  # as a pass does: the jobs that move are not noted again
        assert await make_ahead(db, what, clock.at) == 3
        assert await make_ahead(db, what, clock.at) == 0
    this_week = f"job_history_tags_{TAGS.beginning(clock.at):%Y%m%d}"
    assert await count(db, this_week) == 100
    assert [row["id"] for row in await run(db, "SELECT id FROM job_history_tags_default")] == [old]
    await add_ended(db, 1, tags=("c",))
    assert await count(db, this_week) == 101


async def test_jobs_that_end_meanwhile_are_all_there(db: Database, clock: DatabaseClock) -> None:
    async def end_jobs() -> None:
        for _ in range(40):
            await add_ended(db, 25)

    ending = asyncio.gather(*(end_jobs() for _ in range(3)))
    while not await names(db, "job_history"):
        await make_ahead(db, HISTORY, clock.at)
    await ending
    assert await count(db, "job_history") == 3_000
    assert len(await names(db, "job_history")) == 3


async def test_a_full_default_partition_is_left_alone(
    db: Database, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "MOST_MOVED", 50)
    await add_ended(db, 100)
    assert await make_ahead(db, HISTORY, clock.at) == 2, "those of the weeks to come"
    assert await count(db, "job_history_default") == 100


async def test_expired_ones_go_and_leave_the_rest(db: Database, clock: DatabaseClock) -> None:
    await make_ahead(db, HISTORY, clock.at)
    await add_ended(db, 10)
    await clock.advance(timedelta(days=20))
    await make_ahead(db, HISTORY, clock.at)
    await add_ended(db, 5)
    assert await drop_expired(db, HISTORY, clock.at - timedelta(days=30)) == 0
    await clock.advance(timedelta(days=17))
    assert await drop_expired(db, HISTORY, clock.at - timedelta(days=30)) >= 1
    assert await count(db, "job_history") == 5


async def test_one_that_was_detached_before_a_crash_is_dropped_later(db: Database, clock: DatabaseClock) -> None:
    await make_ahead(db, LOGS, clock.at)
    [first, *rest] = await names(db, "job_logs")
    await run(db, f"ALTER TABLE job_logs DETACH PARTITION {first}")
    assert await drop_expired(db, LOGS, clock.at - timedelta(days=7)) == 1
    assert await names(db, "job_logs") == rest
    assert await run(db, "SELECT to_regclass($1) AS found", first) == [(None,)]
