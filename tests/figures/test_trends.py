"""All series of a range at once are the figures, and what cannot change any more is read once."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import asyncpg
import pytest

from paddock.db.pool import Database, Statement
from paddock.jobs.figures import charting, overviews
from paddock.jobs.figures.counting import refresh_figures
from paddock.jobs.figures.trends import RANGES, Trends, error_groups
from tests.conftest import DatabaseClock
from tests.reading.rows import add_ended, add_kind, add_live, run


class Watched(Database):
    """Remembers from when on the steps were asked for."""

    asked: list[datetime]

    async def fetch(self, statement: Statement, *arguments: object) -> Sequence[asyncpg.Record]:
        if statement.name == "ended_steps":
            since = arguments[1]
            assert isinstance(since, datetime)
            self.asked.append(since)
        return await super().fetch(statement, *arguments)


@pytest.fixture
def watched(db: Database) -> Watched:
    made = Watched(db.pool("durable"), db.pool("relaxed"))
    made.asked = []
    return made


class Hand:
    """A monotonic clock that a test moves: past the second for which a trend is remembered."""

    at = 0.0

    def __call__(self) -> float:
        self.at += 2
        return self.at


async def work(db: Database, clock: DatabaseClock, *, passes: int, failed: int = 1) -> None:
    """So many passes, 10 s apart, and between them jobs that end."""
    for _ in range(passes):
        await clock.advance(seconds=10)
        await add_ended(db, 3, kind="export", ago="2 s")
        await add_ended(db, failed, kind="export", status="failed", error=("broken", "It broke."), ago="1 s")
        await run(db, "UPDATE job_history SET run_seconds = 4, wait_seconds = 0.3 WHERE run_seconds = 0")
        await refresh_figures(db)


@pytest.mark.parametrize("metric", ["throughput", "failures", "wait_p95", "duration_p50", "backlog", "running"])
async def test_a_trend_says_what_the_series_say(db: Database, clock: DatabaseClock, metric: str) -> None:
    # In the middle of a bucket: a job that ends on its very edge is 0 in one and not yet known in the other.
    await clock.advance(seconds=(5 - clock.at.second) % 10)
    await add_kind(db, "export")
    await add_live(db, 5, kind="export")
    await work(db, clock, passes=5)
    expected = {point.at: point.value for point in (await charting.series(db, metric)).points}
    trend = await Trends(db).read("1h")
    found = {point.at: point.value for point in trend.series[metric].points}
    assert len(found) == len(expected) - 1, "the oldest bucket is being pruned"
    assert found == {at: expected[at] for at in found}
    assert any(found.values()) or metric == "running"


async def test_what_cannot_change_is_read_once_and_nothing_is_missed(
    db: Database, watched: Watched, clock: DatabaseClock
) -> None:
    await add_kind(db, "export")
    remembering = Trends(watched, Hand())
    for name in RANGES:
        await clock.advance(minutes=3)
        await remembering.read(name)
        for _ in range(4):
            await work(db, clock, passes=3)
            await clock.advance(minutes=11)
            await work(db, clock, passes=1)
            found = await remembering.read(name)
            assert found.series == (await Trends(db).read(name)).series, name
        await remembering.read(name)
        newest = watched.asked[-1]
        assert clock.at - newest <= timedelta(minutes=2) + RANGES[name].step * 2, "only the end is asked for"


async def test_whoever_looks_within_a_second_is_shown_the_same(
    db: Database, watched: Watched, clock: DatabaseClock
) -> None:
    now = 0.0
    trends = Trends(watched, lambda: now)
    assert await trends.read("15m") is await trends.read("15m")
    assert len(watched.asked) == 1
    now = 1.5
    await trends.read("15m")
    assert len(watched.asked) == 2


async def test_what_nobody_has_counted_is_unknown_and_not_nothing(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "export")
    await work(db, clock, passes=3)
    await clock.advance(minutes=5)
    trend = await Trends(db).read("15m")
    points = trend.series["throughput"].points
    assert [point.value for point in points[-29:]] == [None] * 29
    assert trend.counted_to == clock.at - timedelta(minutes=5)
    assert any(point.value for point in points)


async def test_an_unfinished_step_is_a_rate_of_the_time_it_has_lasted(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "export")
    # To the beginning of a step of five minutes, and two minutes on: 12 passes with 3 jobs each.
    await clock.advance(seconds=300 - clock.at.timestamp() % 300)
    await work(db, clock, passes=13)
    newest = (await Trends(db).read("24h")).series["throughput"].points[-1]
    assert newest.value == pytest.approx(0.3, rel=0.1)


async def test_errors_are_grouped_by_kind_and_code(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "export")
    await work(db, clock, passes=2)
    await clock.advance(minutes=20)
    await work(db, clock, passes=2, failed=4)
    [group] = await error_groups(db, timedelta(hours=1))
    assert (group.kind, group.code, group.n) == ("export", "broken", 10)
    assert [group.n for group in await error_groups(db, timedelta(minutes=15))] == [8]
    assert [group.n for group in await error_groups(db, timedelta(days=7))] == [10]


@pytest.mark.parametrize("length", [timedelta(minutes=15), timedelta(hours=1), timedelta(days=7)])
async def test_the_first_and_the_last_failure_are_told_to_the_second_however_wide_the_buckets(
    db: Database, clock: DatabaseClock, length: timedelta
) -> None:
    await add_kind(db, "export")
    began = clock.at
    await work(db, clock, passes=14)
    [group] = await error_groups(db, length)
    assert (group.first_at, group.last_at) == (began + timedelta(seconds=9), clock.at - timedelta(seconds=1))


async def test_what_waits_for_another_try_is_counted(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "webhook")
    await add_live(db, 5, kind="webhook")
    began = clock.at
    tried = "UPDATE jobs SET started_at = paddock_now(), failure_count = $1 WHERE id IN (SELECT id FROM jobs WHERE started_at IS NULL LIMIT $2)"
    await run(db, tried, 0, 1)  # ended its turn with *again*
    await run(db, tried, 3, 2)
    assert await overviews.retried(db, "webhook") == (2, began)
    assert await overviews.retried(db, "export") == (0, None)


def test_every_range_is_made_of_whole_buckets() -> None:
    kept: dict[int, Any] = {10: timedelta(hours=1), 60: timedelta(days=1), 600: timedelta(weeks=1)}
    for asked in RANGES.values():
        assert asked.length <= kept[asked.width]
        assert asked.step % timedelta(seconds=asked.width) == timedelta(0)
        assert asked.length % asked.step == timedelta(0)
        assert asked.length / asked.step <= 360, "more points than a chart has pixels"
