"""The list of jobs at 1,000,000 jobs, narrowed by each filter and by each pair of them: what a page of 50 takes.

Half of the filters' values are frequent and half are rare, and the jobs that have both of a pair are the oldest: a walk
through the newer ones that have one of the two would read hundreds of thousands first.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from itertools import combinations

from bench.environment import Database, Env
from bench.figures import Figure, percentile
from paddock.db.migrate import migrate
from paddock.db.pool import open_database
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from paddock.jobs.partitions import HISTORY, TAGS, make_ahead

GOAL_MS = 50.0
PAGE_LENGTH = 50
DAYS = 28
# One in a hundred waits; the others ended. Each has one value in common with what is looked for, in turn; the oldest 200
# have all of them. The kind is of the bench's own worker.
SEED = """
INSERT INTO job_history (id, kind, status, priority, owner, tags, payload, turn_count, failure_count, cluster_count,
    lost_count, error_code, error_message, created_at, started_at, claimed_at, completed_at, run_seconds, wait_seconds)
SELECT paddock_id(at, n), CASE WHEN old OR same = 0 THEN 'probe' ELSE (ARRAY['noop', 'noted', 'probe_blocking'])[1 + n % 3] END,
    status, 3, CASE WHEN old OR same = 1 THEN 'wanted' ELSE 'owner-' || n % 200 END,
    ARRAY[CASE WHEN old OR same = 2 THEN 'wanted' ELSE 'team-' || n % 500 END], '{"filler": "seeded"}', 1, 0, 0, 0,
    CASE WHEN status <> 'completed' THEN CASE WHEN old OR same = 4 THEN 'wanted' ELSE 'broken_' || n % 50 END END,
    CASE WHEN status <> 'completed' THEN 'It broke.' END, at, at, at, at + interval '3 seconds', 2, 1
FROM (SELECT *, CASE WHEN old OR same = 3 THEN 'failed' WHEN same = 4 OR n % 50 = 7 THEN 'cancelled' ELSE 'completed' END AS status
      FROM (SELECT n, n % 5 AS same, n <= 200 AS old, $2::timestamptz + (n - $1) * (make_interval(days => $3) / $1) AS at
            FROM generate_series(1, $1::bigint) AS n) numbered) rows
"""
SEED_LIVE = """
INSERT INTO jobs (id, kind, status, priority, due_at, owner, tags, payload, created_at)
SELECT paddock_id(at, n), (ARRAY['noop', 'noted', 'probe', 'probe_blocking'])[1 + n % 4], 'pending', 3, 'infinity',
    'owner-' || n % 200, ARRAY['team-' || n % 500], '{"filler": "seeded"}', at
FROM (SELECT n, now() - n * interval '10 milliseconds' AS at FROM generate_series(1, $1::bigint) AS n) rows
"""
WANTED = {"tag": "wanted", "kind": "probe", "status": "failed", "owner": "wanted", "error_code": "wanted"}


async def run(env: Env) -> list[Figure]:
    jobs = 50_000 if env.quick else 1_000_000
    calls = 20 if env.quick else 100
    figures = []
    async with env.database("finding_jobs") as database:
        now = await _seed(database, jobs)
        async with open_database(database.dsn) as db:
            for name, asked in _filters(now).items():
                for _ in range(5):
                    await reading.page(db, asked, limit=PAGE_LENGTH)
                samples = []
                for _ in range(calls):
                    started = time.perf_counter()
                    page = await reading.page(db, asked, limit=PAGE_LENGTH)
                    if len(page.jobs) < PAGE_LENGTH:
                        raise RuntimeError(f"The page narrowed by {name} is not full: {page}.")
                    samples.append(1e3 * (time.perf_counter() - started))
                slow = percentile(samples, 0.95)
                note = f"p50 {percentile(samples, 0.5):.1f} ms"
                title = f"{name}: p95 at {jobs:,} jobs"
                figures.append(Figure(title, slow, "ms", f"< {GOAL_MS:g} ms", slow < GOAL_MS, note=note))
    return figures


async def _seed(database: Database, jobs: int) -> datetime:
    live = jobs // 100
    await migrate(database.dsn)
    async with open_database(database.dsn) as db:
        now = await reading.clock(db)
        for week in range(DAYS // 7 + 1):
            for table in (HISTORY, TAGS):
                await make_ahead(db, table, now - timedelta(weeks=week))
    async with database.connect() as connection:
        await connection.execute(SEED, jobs - live, now - timedelta(minutes=5), DAYS, timeout=1_200)
        await connection.execute(SEED_LIVE, live, timeout=600)
        await connection.execute("VACUUM ANALYZE", timeout=600)
    return now


def _filters(now: datetime) -> Mapping[str, Filter]:
    """Each filter and each pair; time is that of the oldest, long ago."""
    long_ago = now - timedelta(days=DAYS - 1)
    singles = {name: {name: value} for name, value in WANTED.items()} | {"time": {"until": long_ago}}
    pairs = {f"{one} and {other}": singles[one] | singles[other] for one, other in combinations(singles, 2)}
    return {name: Filter(**narrowed) for name, narrowed in (singles | pairs).items()}
