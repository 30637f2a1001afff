"""Figures: what charts and counts read, so that neither ever reads the jobs.

A pass, every 10 s, counts the last two minutes of history anew (finishes commit out of order, and late), samples the
queue, and rolls 10 s buckets up to 1 min and 10 min. It is idempotent: two passes at once wait for each other, and
a repeated one writes the same figures. After an outage it goes on from where it stopped, at most an hour of history
in one pass.

Not promised: a finish that commits more than two minutes after its own time is missing from the figures.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from paddock.db.pool import Database, Transaction
from paddock.jobs.figures import overviews
from paddock.jobs.figures.charting import METRICS, ErrorCount, Point, Series, series
from paddock.jobs.figures.histograms import BOUNDS, KEPT, SQL, ZERO, filled
from paddock.metrics import Metrics, show_all

RECOUNTED = timedelta(minutes=2)
# Further behind than this, whole 10 min buckets are counted from history: what they consist of may be pruned already.
BEHIND = timedelta(minutes=30)
STEP, STEPS = timedelta(minutes=10), 6
# Up to so many waiting jobs of a kind are counted at each sample; more are counted the more seldom the more they are.
COUNTED_EACH_TIME = 10_000
COUNTED_PER_SECOND = 10_000


@dataclass(frozen=True, slots=True)
class Refreshed:
    """`counted_to` is behind the clock while an outage is being caught up."""

    counted_from: datetime
    counted_to: datetime
    kinds_sampled: int


async def refresh_figures(db: Database) -> Refreshed:
    async with db.transaction() as tx:
        await tx.execute(SQL["one_pass_at_a_time"])
        progress = await tx.fetchrow(SQL["progress"])
        assert progress is not None
        now: datetime = progress["now"]
        start, end = _window(progress["counted_to"], now)
        await _count(tx, start, end)
        sampled = await _sample(db, tx, now)
        await tx.execute(SQL["note_versions"])
        await _roll(tx, start, end)
        await _roll_samples(tx, now)
        for width, kept in KEPT.items():
            await tx.execute(SQL["prune"], width, now - kept)
        await tx.execute(SQL["keep_progress"], min(end, now))
    return Refreshed(start, min(end, now), sampled)


async def sample_gauges(db: Database, metrics: Metrics) -> None:
    """Queue depth, oldest due and kinds nobody offers, measured now: they must be true when the passes stand still."""
    rows = await db.fetch(SQL["measure_queue"], COUNTED_EACH_TIME)
    now = await db.fetchval(SQL["clock"])
    depth: dict[tuple[str, ...], float] = {}
    for row in rows:
        waiting = await _waiting(db, row, now)
        for status, n in (("pending", waiting), ("claimed", row["claimed"]), ("submitted", row["submitted"])):
            depth[row["kind"], status] = n
    show_all(metrics.queue_depth, depth)
    show_all(metrics.oldest_due_age, {(row["kind"],): row["oldest_due_seconds"] for row in rows})
    unoffered = {kind.name for kind in await overviews.kinds(db) if kind.unoffered}
    show_all(metrics.kind_unoffered, {(row["kind"],): float(row["kind"] in unoffered) for row in rows})


def _window(counted_to: datetime, now: datetime) -> tuple[datetime, datetime]:
    """Which part of history a pass counts; both ends are multiples of 10 s, of 10 min when it is far behind."""
    end = _floor(now, 10) + timedelta(seconds=10)
    start = min(counted_to, now) - RECOUNTED
    if now - start <= BEHIND:
        return _floor(start, 10), end
    start = _floor(max(start, now - KEPT[600]), 600)
    return start, min(start + STEP * STEPS, end)


async def _count(tx: Transaction, start: datetime, end: datetime) -> None:
    while start < end:
        stop = min(start + STEP, end)
        await tx.execute(filled("count_ended"), start, stop, BOUNDS)
        await tx.execute(SQL["count_errors"], start, stop)
        start = stop


async def _roll(tx: Transaction, start: datetime, end: datetime) -> None:
    for narrow, wide in ((10, 60), (60, 600)):
        first, last = _floor(start, wide), _floor(end, wide) + timedelta(seconds=wide)
        await tx.execute(filled("roll_ended"), first, last, narrow, wide)
        await tx.execute(SQL["roll_errors"], first, last, narrow, wide)


async def _roll_samples(tx: Transaction, now: datetime) -> None:
    for narrow, wide in ((10, 60), (60, 600)):
        first = _floor(now - RECOUNTED, wide)
        await tx.execute(SQL["roll_samples"], first, _floor(now, wide) + timedelta(seconds=wide), narrow, wide)


async def _sample(db: Database, tx: Transaction, now: datetime) -> int:
    rows = await db.fetch(SQL["measure_queue"], COUNTED_EACH_TIME)
    await tx.execute(
        SQL["keep_sample"],
        _floor(now, 10),
        [row["kind"] for row in rows],
        [await _waiting(db, row, now) for row in rows],
        [row["claimed"] for row in rows],
        [row["submitted"] for row in rows],
        [row["oldest_due_seconds"] for row in rows],
    )
    return len(rows)


async def _waiting(db: Database, row: asyncpg.Record, now: datetime) -> int:
    """A backlog of a million takes a tenth of a second to count: then once in 100 s, and the last count in between."""
    if not row["many"]:
        return int(row["pending"])
    before = await db.fetchrow(SQL["sample_before"], row["kind"], _floor(now, 10))
    if before is not None and before["pending"] > COUNTED_EACH_TIME:
        period = max(10, before["pending"] // COUNTED_PER_SECOND)
        if _floor(now, period) <= _floor(before["bucket"], period):
            return int(before["pending"])
    return int(await db.fetchval(SQL["count_waiting"], row["kind"]))


def _floor(at: datetime, seconds: int) -> datetime:
    width = timedelta(seconds=seconds)
    return ZERO + (at - ZERO) // width * width


__all__ = ["METRICS", "ErrorCount", "Point", "Refreshed", "Series", "refresh_figures", "sample_gauges", "series"]
