"""Figures equal a direct count of history, whenever and however often the pass runs."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from paddock.db.pool import Database
from paddock.jobs.errors import Refused
from paddock.jobs.figures import charting, counting, histograms
from paddock.jobs.figures.counting import refresh_figures
from paddock.metrics import Metrics
from tests.conftest import DatabaseClock
from tests.reading.rows import add_ended, add_kind, add_live, run

DIRECT = """
SELECT date_bin(make_interval(secs => $1), completed_at, '2000-01-01Z') AS bucket, kind, status, count(*) AS n,
       round(sum(run_seconds)::numeric, 3) AS run_seconds
FROM job_history WHERE cleanup_of IS NULL AND kind <> 'housekeeper' AND completed_at >= $2 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""
STORED = """
SELECT bucket, kind, status, n, round(run_seconds::numeric, 3) AS run_seconds
FROM job_stats WHERE width = $1 AND bucket >= $2 ORDER BY 1, 2, 3"""


async def scatter(db: Database, n: int, *, over: str, kind: str = "probe", status: str = "completed") -> None:
    await add_ended(db, n, kind=kind, status=status, error=("broken", "It broke.") if status == "failed" else None)
    await run(
        db,
        """UPDATE job_history SET completed_at = paddock_now() - random() * $1::text::interval,
               run_seconds = 20 + random() * 40, wait_seconds = random(), priority = 4
           WHERE kind = $2 AND status = $3 AND priority = 3""",
        over,
        kind,
        status,
    )


async def agree(db: Database, width: int, since: Any) -> None:
    assert await run(db, STORED, width, since) == await run(db, DIRECT, width, since)


async def test_figures_equal_a_direct_count(db: Database, clock: DatabaseClock) -> None:
    for kind in ("probe", "export"):
        await add_kind(db, kind)
        for status in ("completed", "failed", "cancelled"):
            await scatter(db, 100, over="25 minutes", kind=kind, status=status)
    await add_kind(db, "housekeeper", housekeeping=True)
    await scatter(db, 50, over="25 minutes", kind="housekeeper")
    cleanup = await add_ended(db, 1)
    await run(db, "UPDATE job_history SET cleanup_of = id WHERE id = $1", cleanup[0])

    await refresh_figures(db)
    await refresh_figures(db)

    for width in (10, 60, 600):
        await agree(db, width, clock.at - timedelta(hours=2))
    errors = await run(
        db, "SELECT kind, sum(n)::int AS n FROM error_stats WHERE width = 600 GROUP BY kind ORDER BY kind"
    )
    assert [tuple(row) for row in errors] == [("export", 100), ("probe", 100)]
    histograms_sum = await run(
        db,
        "SELECT sum(n)::int AS n, sum((SELECT sum(x) FROM unnest(run_histogram) x))::int AS m FROM job_stats WHERE width = 60",
    )
    assert histograms_sum[0]["n"] == histograms_sum[0]["m"] == 600


async def test_a_finish_that_commits_a_minute_late_is_counted(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "probe")
    await add_ended(db, 3)
    await refresh_figures(db)
    await clock.advance(seconds=90)
    await add_ended(db, 2, ago="90 seconds")
    await refresh_figures(db)
    for width in (10, 60, 600):
        await agree(db, width, clock.at - timedelta(hours=1))


async def test_two_passes_at_once_count_once(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "probe")
    await scatter(db, 200, over="100 seconds")
    await asyncio.gather(*(refresh_figures(db) for _ in range(4)))
    for width in (10, 60, 600):
        await agree(db, width, clock.at - timedelta(hours=1))


async def test_after_an_outage_the_passes_catch_up_in_bounded_steps(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "probe")
    await add_ended(db, 5)
    began = (await refresh_figures(db)).counted_to
    await clock.advance(minutes=5 * 60)
    await add_kind(db, "export")
    await scatter(db, 500, over="298 minutes", kind="export")

    passes = [await refresh_figures(db)]
    assert passes[0].counted_to < clock.at
    while passes[-1].counted_to < clock.at:
        passes.append(await refresh_figures(db))
    assert 3 < len(passes) < 10
    assert all(one.counted_to - one.counted_from <= timedelta(hours=1) for one in passes)
    await agree(db, 60, began - timedelta(hours=1))
    await agree(db, 600, began - timedelta(hours=1))
    kept = await run(db, "SELECT min(bucket) AS oldest FROM job_stats WHERE width = 10")
    assert kept[0]["oldest"] >= clock.at - timedelta(hours=1, seconds=10)


async def test_old_buckets_go(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "probe")
    await add_ended(db, 5)
    await refresh_figures(db)
    # Each by a little more than is kept: at a full minute a bucket begins just where the kept time does.
    hour, day, week = timedelta(minutes=61), timedelta(hours=24, minutes=2), timedelta(days=7, minutes=11)
    for delta, left in ((hour, {60, 600}), (day, {600}), (week, set())):
        await clock.advance(delta)
        await refresh_figures(db)
        for table in ("job_stats", "error_stats", "queue_stats"):
            old = await run(
                db, f"SELECT DISTINCT width FROM {table} WHERE bucket < $1", clock.at - timedelta(minutes=60)
            )
            assert {row["width"] for row in old} <= left


async def test_the_sample_says_what_waits_and_runs(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "probe")
    await add_kind(db, "idle")
    await add_live(db, 7, ago="30 seconds")
    await run(
        db,
        """UPDATE jobs SET status = 'claimed', attempt_id = gen_random_uuid()
           WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' LIMIT 2)""",
    )
    await run(
        db,
        """UPDATE jobs SET status = 'submitted', waiting_on = 'trino', due_at = 'infinity'
           WHERE id IN (SELECT id FROM jobs WHERE status = 'pending' LIMIT 1)""",
    )
    await refresh_figures(db)
    rows = await run(
        db, "SELECT kind, pending, claimed, submitted, oldest_due_seconds FROM queue_stats WHERE width = 60"
    )
    assert sorted(map(tuple, rows)) == [("idle", 0, 0, 0, 0.0), ("probe", 4, 2, 1, 30.0)]

    metrics = Metrics(CollectorRegistry())
    await counting.sample_gauges(db, metrics)
    text = metrics.render()[0].decode()
    assert 'paddock_queue_depth{kind="probe",status="pending"} 4.0' in text
    assert 'paddock_oldest_due_age_seconds{kind="probe"} 30.0' in text
    assert 'paddock_kind_unoffered{kind="probe"} 1.0' in text


async def test_a_large_backlog_is_counted_seldom(
    db: Database, clock: DatabaseClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counting, "COUNTED_EACH_TIME", 10)
    monkeypatch.setattr(counting, "COUNTED_PER_SECOND", 1)
    await clock.advance(seconds=(100 - clock.at.timestamp() % 100) % 100)
    await add_kind(db, "probe")
    await add_live(db, 100)

    async def sampled() -> int:
        await refresh_figures(db)
        rows = await run(db, "SELECT pending FROM queue_stats WHERE width = 10 ORDER BY bucket DESC LIMIT 1")
        return int(rows[0]["pending"])

    assert await sampled() == 100
    await add_live(db, 50)
    await clock.advance(seconds=50)
    assert await sampled() == 100, "carried on"
    await clock.advance(seconds=50)
    assert await sampled() == 150, "counted again"


async def test_series_read_what_was_counted(db: Database, clock: DatabaseClock) -> None:
    await add_kind(db, "probe")
    await scatter(db, 300, over="100 seconds")
    await scatter(db, 30, over="100 seconds", status="failed")
    await clock.advance(seconds=20)
    await refresh_figures(db)

    async def values(metric: str, **asked: Any) -> list[float]:
        series = await counting.series(db, metric, **asked)
        assert len(series.points) == (series.points[-1].at - series.points[0].at) / series.width + 1
        return [point.value for point in series.points if point.value is not None]

    assert round(sum(await values("throughput")) * 10) == 300
    assert sum(await values("failures", kind="probe")) == 30
    assert sum(await values("failures", kind="other")) == 0
    assert all(10 < value < 90 for value in await values("duration_p50") if value)
    assert max(await values("duration_p95")) > max(await values("duration_p50"))
    errors = await counting.series(db, "errors", kind="probe")
    assert [(code.code, code.n) for code in errors.codes] == [("broken", 30)]
    for metric in charting.METRICS:
        for length in (timedelta(minutes=30), timedelta(hours=20), timedelta(days=7)):
            await values(metric, range=length)
    for bad in ({"metric": "nope"}, {"metric": "errors", "range": timedelta(days=8)}):
        with pytest.raises(Refused) as refused:
            await counting.series(db, **bad)
        assert refused.value.status == 422


def test_percentiles_lie_between_their_bounds() -> None:
    histogram = [0] * (len(histograms.BOUNDS) + 1)
    assert histograms.percentile(histogram, 0.5) is None
    histogram[7] = 100  # between 1 and 2 seconds
    assert histograms.percentile(histogram, 0.5) == pytest.approx(1.5)
    histogram[-1] = 1000
    assert histograms.percentile(histogram, 0.95) == histograms.BOUNDS[-1]
