"""Series for charts, from the figures tables alone."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from paddock.db.pool import Database
from paddock.jobs.errors import Refused
from paddock.jobs.figures.histograms import KEPT, SQL, ZERO, filled, percentile

MOST_CODES = 20

Buckets = Mapping[datetime, float | None]


@dataclass(frozen=True, slots=True)
class Point:
    """`at` is the beginning of its bucket. None: nothing is known of that time."""

    at: datetime
    value: float | None


@dataclass(frozen=True, slots=True)
class ErrorCount:
    kind: str
    code: str
    n: int
    first_job: UUID
    last_job: UUID


@dataclass(frozen=True, slots=True)
class Series:
    metric: str
    kind: str | None
    unit: str
    width: timedelta
    points: Sequence[Point]
    # Only of `errors`: the most frequent ones.
    codes: Sequence[ErrorCount] = ()


@dataclass(frozen=True, slots=True)
class _Metric:
    unit: str
    statement: str
    read: Callable[[Sequence[asyncpg.Record], int], Buckets]
    # What a bucket without a row means: nothing happened, or nobody looked.
    absent: float | None = None


def _ended(status: str, *, rate: bool) -> Callable[[Sequence[asyncpg.Record], int], Buckets]:
    return lambda rows, width: {
        row["bucket"]: row["n"] / width if rate else row["n"] for row in rows if row["status"] == status
    }


def _plain(column: str) -> Callable[[Sequence[asyncpg.Record], int], Buckets]:
    return lambda rows, _: {row["bucket"]: row[column] for row in rows}


def _share(column: str, share: float) -> Callable[[Sequence[asyncpg.Record], int], Buckets]:
    def read(rows: Sequence[asyncpg.Record], _: int) -> Buckets:
        histograms: dict[datetime, list[int]] = {}
        for row in rows:
            before = histograms.get(row["bucket"])
            histograms[row["bucket"]] = (
                list(row[column]) if before is None else [a + b for a, b in zip(before, row[column], strict=True)]
            )
        return {bucket: percentile(histogram, share) for bucket, histogram in histograms.items()}

    return read


METRICS: Mapping[str, _Metric] = {
    "throughput": _Metric("jobs/s", "ended_series", _ended("completed", rate=True), 0),
    "failures": _Metric("jobs", "ended_series", _ended("failed", rate=False), 0),
    "backlog": _Metric("jobs", "queue_series", _plain("backlog")),
    "running": _Metric("jobs", "queue_series", _plain("running")),
    "oldest_due": _Metric("seconds", "queue_series", _plain("oldest_due")),
    "wait_p50": _Metric("seconds", "ended_series", _share("wait_histogram", 0.5)),
    "wait_p95": _Metric("seconds", "ended_series", _share("wait_histogram", 0.95)),
    "duration_p50": _Metric("seconds", "ended_series", _share("run_histogram", 0.5)),
    "duration_p95": _Metric("seconds", "ended_series", _share("run_histogram", 0.95)),
    "errors": _Metric("jobs", "error_series", _plain("n"), 0),
}


async def series(db: Database, metric: str, kind: str | None = None, range: timedelta = timedelta(hours=1)) -> Series:  # noqa: A002  the API's word
    """Up to an hour in steps of 10 s, up to a day in minutes, up to a week in tens of minutes. Whole buckets only."""
    asked = METRICS.get(metric)
    if asked is None:
        raise Refused(
            "unknown_metric",
            f"There is no metric '{metric[:50]}'.",
            hint=f"Ask for one of {', '.join(METRICS)}.",
            status=422,
        )
    if not timedelta(minutes=1) <= range <= KEPT[600]:
        raise Refused("invalid_range", "The range must lie between a minute and seven days.", status=422)
    width = next(width for width, kept in KEPT.items() if range <= kept)
    step = timedelta(seconds=width)
    now = await db.fetchval(SQL["clock"])
    until = ZERO + (now - ZERO) // step * step
    since = until - range // step * step
    rows = await db.fetch(filled(asked.statement), width, since, until, kind)
    found = asked.read(rows, width)
    points = []
    at = since
    while at < until:
        points.append(Point(at, found.get(at, asked.absent)))
        at += step
    codes: list[ErrorCount] = []
    if metric == "errors":
        top = await db.fetch(SQL["error_codes"], width, since, until, kind, MOST_CODES)
        codes = [ErrorCount(row["kind"], row["code"], row["n"], row["first_job"], row["last_job"]) for row in top]
    return Series(metric, kind, asked.unit, step, points, codes)
