"""Does a job get dearer as the queue ages? 90,000 jobs in six slices; CPU per job of the last against the first.

Three settings: plain; on top of 1,000,000 finished jobs; with a snapshot held open by an idle reader, so that vacuum
may remove nothing and every naive claim walks all the dead entries before it. The floor runs beside ours to show what
such a claim does then; it has no goal.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import AsyncIterator

from bench import floor, paddock_peer
from bench.contenders import Load, OpenChurn
from bench.environment import Database, Env
from bench.figures import Figure, at_most, missing, shown

SLICES = 6
GOAL = 1.2


@contextlib.asynccontextmanager
async def held_snapshot(database: Database) -> AsyncIterator[None]:
    async with database.connect() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        await connection.fetchval("SELECT count(*) FROM pg_class")
        yield


async def cost_per_slice(
    env: Env, open_churn: OpenChurn, *, jobs: int, finished_before: int = 0, hold: bool = False
) -> list[float]:
    """Microseconds of PostgreSQL and control plane CPU per job, slice by slice."""
    costs = []
    async with env.database("slices") as database, open_churn(env, database, Load(jobs)) as churn:
        if finished_before:
            await paddock_peer.seed_finished(database, finished_before)
        await churn.run(jobs // 10)  # connections, plans and caches warm
        async with held_snapshot(database) if hold else contextlib.nullcontext():
            for number in range(SLICES):
                async with env.measure(churn.control_pids) as measurement:
                    await churn.run(jobs)
                costs.append(1e6 * measurement.usage.cpu / jobs)
                env.say(f"slice {number + 1}: {costs[-1]:.1f} us/job")
    return costs


async def run(env: Env) -> list[Figure]:
    jobs = 3_000 if env.quick else 15_000
    finished = 50_000 if env.quick else 1_000_000
    settings = (
        ("plain", 0, False),
        (f"over {finished:,} finished jobs", finished, False),
        ("snapshot held open", 0, True),
    )
    figures = []
    for label, finished_before, hold in settings:
        name = f"paddock, {label}: last slice / first"
        ours: list[list[float]] = []
        bare: list[list[float]] = []
        for _ in range(1 if env.quick else 3):
            with contextlib.suppress(NotImplementedError):
                ours.append(
                    await cost_per_slice(env, paddock_peer.churn, jobs=jobs, finished_before=finished_before, hold=hold)
                )
            if not finished_before:
                bare.append(await cost_per_slice(env, floor.churn, jobs=jobs, hold=hold))
        if ours:
            figures.append(at_most(name, _last_to_first(ours), GOAL, note=_costs(ours)))
        else:
            figures.append(missing(name, "x", f"<= {GOAL:g} x"))
        if bare:
            seen = f"floor, {label}: last slice / first"
            figures.append(shown(seen, _last_to_first(bare), "x", note=_costs(bare)))
    return figures


def _last_to_first(rounds: list[list[float]]) -> list[float]:
    return [costs[-1] / costs[0] for costs in rounds]


def _costs(rounds: list[list[float]]) -> str:
    medians = [statistics.median(of_one_slice) for of_one_slice in zip(*rounds, strict=True)]
    return "us/job: " + ", ".join(f"{cost:.0f}" for cost in medians)
