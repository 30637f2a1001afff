"""Twelve named queries at 1,000,000 jobs, one warm client: what a person waits for."""

from __future__ import annotations

import time

from bench import paddock_peer
from bench.environment import Env
from bench.figures import Figure, missing, percentile

QUERIES = 12
GOAL_MS = 50.0


async def run(env: Env) -> list[Figure]:
    jobs = 50_000 if env.quick else 1_000_000
    calls = 40 if env.quick else 200
    figures = []
    try:
        async with (
            env.database("queries") as database,
            paddock_peer.named_queries(env, database, jobs=jobs) as queries,
        ):
            if len(queries) != QUERIES:
                raise RuntimeError(f"There are {len(queries)} named queries; the goal speaks of {QUERIES}.")
            for name, query in queries.items():
                for _ in range(5):
                    await query()
                samples = []
                for _ in range(calls):
                    started = time.perf_counter()
                    await query()
                    samples.append(1e3 * (time.perf_counter() - started))
                slow = percentile(samples, 0.95)
                note = f"p50 {percentile(samples, 0.5):.1f} ms"
                figures.append(
                    Figure(f"{name}: p95 at {jobs:,} jobs", slow, "ms", f"< {GOAL_MS:g} ms", slow < GOAL_MS, note=note)
                )
    except NotImplementedError:
        return [missing(f"{QUERIES} named queries: worst p95 at {jobs:,} jobs", "ms", f"< {GOAL_MS:g} ms")]
    return figures
