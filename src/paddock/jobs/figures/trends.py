"""All series of a range at once, for the page that shows how the whole has been.

What has been counted for good (figures.py counts the last two minutes anew, and nothing before them) is read once and
remembered: a look at seven days costs what a look at a quarter of an hour does. One `Trends` serves everybody who looks.

Steps are wider than the buckets they consist of where a chart has fewer pixels than there are buckets. The newest step
may be an unfinished one; what lies after the last pass is None, not 0: nobody has counted it yet.
"""

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from paddock.db.pool import Database, statements
from paddock.jobs.figures.charting import METRICS, Point, Series
from paddock.jobs.figures.counting import RECOUNTED
from paddock.jobs.figures.histograms import ZERO, percentile, spelled_out

SQL = statements("paddock.jobs.sql", "trends.sql")
REMEMBERED_SECONDS = 1.0
MOST_GROUPS = 200
# Grouping errors reads all buckets of its time: not more than some hundreds of each kind and code.
GROUPED: Mapping[timedelta, int] = {timedelta(minutes=15): 10, timedelta(hours=1): 60, timedelta(days=7): 600}


@dataclass(frozen=True, slots=True)
class Range:
    """`width` is that of the buckets in seconds, `step` that of what is shown, a multiple of it."""

    name: str
    words: str
    length: timedelta
    width: int
    step: timedelta


RANGES: Mapping[str, Range] = {
    "15m": Range("15 min", "15 minutes", timedelta(minutes=15), 10, timedelta(seconds=10)),
    "1h": Range("1 h", "hour", timedelta(hours=1), 10, timedelta(seconds=10)),
    "24h": Range("24 h", "24 hours", timedelta(hours=24), 60, timedelta(minutes=5)),
    "7d": Range("7 d", "7 days", timedelta(days=7), 600, timedelta(minutes=30)),
}


@dataclass(frozen=True, slots=True)
class Trend:
    """`counted_to` is when the figures were last taken; None: never. `series` are named as in `charting.METRICS`."""

    since: datetime
    until: datetime
    step: timedelta
    counted_to: datetime | None
    series: Mapping[str, Series]


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Failures of one kind with one code, the first and the last of them; `mistakes` are those of whoever asked."""

    kind: str
    code: str
    n: int
    mistakes: int
    first_at: datetime
    last_at: datetime
    last_job: UUID


@dataclass(slots=True)
class _RangeCache:
    """Of one range: the figures of each step, and up to where they cannot change any more."""

    steps: dict[datetime, dict[str, float | None]] = field(default_factory=dict)
    settled: datetime | None = None
    trend: Trend | None = None
    read_at: float = float("-inf")
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


async def progress(db: Database) -> tuple[datetime, datetime | None]:
    """Now, and up to when history has been counted; None: never."""
    row = await db.fetchrow(SQL["counted_to"])
    assert row is not None
    return row["now"], row["counted_to"]


async def error_groups(db: Database, length: timedelta) -> list[ErrorGroup]:
    """What failed in so long a time up to now, the most frequent first."""
    width = timedelta(seconds=next(width for longest, width in GROUPED.items() if length <= longest))
    now, _ = await progress(db)
    rows = await db.fetch(SQL["error_groups"], width.seconds, _floor(now - length, width), MOST_GROUPS)
    return [ErrorGroup(**row) for row in rows]


class Trends:
    def __init__(self, db: Database, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._monotonic = monotonic
        self._known = {name: _RangeCache() for name in RANGES}

    async def read(self, name: str) -> Trend:
        known = self._known[name]
        async with known.lock:
            if known.trend is None or self._monotonic() - known.read_at >= REMEMBERED_SECONDS:
                known.trend = await self._read(RANGES[name], known)
                known.read_at = self._monotonic()
            return known.trend

    async def _read(self, asked: Range, known: _RangeCache) -> Trend:
        now, counted_to = await progress(self._db)
        until = _floor(now, timedelta(seconds=asked.width))
        since = _floor(until, asked.step) + asked.step - asked.length  # the step before is being pruned
        if known.settled is None or not since <= known.settled <= now:
            known.steps, known.settled = {}, since
        await self._look(asked, known, until)
        known.steps = {at: values for at, values in known.steps.items() if at >= since}
        known.settled = max(since, _floor(min(counted_to or since, now) - RECOUNTED, asked.step))
        counted = min(until, _floor(counted_to or since, timedelta(seconds=asked.width)))
        series = {
            metric: Series(
                metric,
                None,
                METRICS[metric].unit,
                asked.step,
                _points(known, metric, since, until, counted, asked.step),
            )
            for metric in (*ENDED, *QUEUE)
        }
        return Trend(since, until, asked.step, counted_to, series)

    async def _look(self, asked: Range, known: _RangeCache, until: datetime) -> None:
        span = (asked.width, known.settled, until, asked.step)
        ended = await self._db.fetch(spelled_out(SQL["ended_steps"]), *span)
        queue = await self._db.fetch(SQL["queue_steps"], *span)
        assert known.settled is not None
        for at in [at for at in known.steps if at >= known.settled]:
            del known.steps[at]
        for rows, metrics in ((ended, ENDED), (queue, QUEUE)):
            for row in rows:
                known.steps.setdefault(row["at"], {}).update({name: read(row) for name, read in metrics.items()})


def _share(column: str, share: float) -> Callable[[asyncpg.Record], float | None]:
    return lambda row: percentile(row[column], share)


ENDED: Mapping[str, Callable[[asyncpg.Record], float | None]] = {
    "throughput": lambda row: row["completed"],  # a number here, a rate once it is known how long the step has lasted
    "failures": lambda row: row["failed"],
    "wait_p50": _share("wait_histogram", 0.5),
    "wait_p95": _share("wait_histogram", 0.95),
    "duration_p50": _share("run_histogram", 0.5),
    "duration_p95": _share("run_histogram", 0.95),
}
QUEUE: Mapping[str, Callable[[asyncpg.Record], float | None]] = {
    "backlog": lambda row: row["backlog"],
    "running": lambda row: row["running"],
    "oldest_due": lambda row: row["oldest_due"],
}


def _points(
    known: _RangeCache, metric: str, since: datetime, until: datetime, counted: datetime, step: timedelta
) -> list[Point]:
    points = []
    at = since
    while at < until:
        value = known.steps.get(at, {}).get(metric, METRICS[metric].absent)
        if metric in ENDED and at >= counted:
            value = None
        elif metric == "throughput" and value:
            value /= min(step, counted - at).total_seconds()
        points.append(Point(at, value))
        at += step
    return points


def _floor(at: datetime, width: timedelta) -> datetime:
    return ZERO + (at - ZERO) // width * width
