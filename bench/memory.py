"""Memory of serve and worker while 1,000,000 jobs pass: no growth over the second half.

Growth compares the median of the last quarter with that of the quarter before it, in memory that is the processes' own
(shared pages left out); 2 % is what an allocator wanders by.
"""

from __future__ import annotations

import statistics

from bench import paddock_peer
from bench.contenders import Load
from bench.environment import Env, resident_bytes
from bench.figures import Figure, missing

SLICES = 40
GOAL = 1.02


def growth_over_second_half(samples: list[int]) -> float:
    quarter = len(samples) // 4
    return statistics.median(samples[-quarter:]) / statistics.median(samples[-2 * quarter : -quarter])


async def run(env: Env) -> list[Figure]:
    jobs = 40_000 if env.quick else 1_000_000
    serve: list[int] = []
    worker: list[int] = []
    try:
        async with (
            env.database("memory") as database,
            paddock_peer.churn(env, database, Load(jobs // SLICES)) as churn,
        ):
            for _ in range(SLICES):
                await churn.run(jobs // SLICES)
                serve.append(resident_bytes(churn.control_pids))
                worker.append(resident_bytes(churn.worker_pids))
    except NotImplementedError:
        return [
            missing(f"{name}: growth over the second half of {jobs:,} jobs", "x", f"<= {GOAL:g} x")
            for name in ("serve", "worker")
        ]
    figures = []
    for name, samples in (("serve", serve), ("worker", worker)):
        growth = growth_over_second_half(samples)
        label = f"{name}: growth over the second half of {jobs:,} jobs"
        figures.append(Figure(label, growth, "x", f"<= {GOAL:g} x", growth <= GOAL))
        figures.append(Figure(f"{name}: memory at the end", samples[-1] / 2**20, "MiB"))
    return figures
