"""Ingest on a simulated cluster: Jobs for each batch, how many wait for a place at once, and what is made of the places.

Virtual time, so the machine does not matter; other seeds give other figures in the last digit. Beside it stands what the
backoff alone would do: every step makes its Job at once, and tries again when it found no place.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from bench.environment import Env
from bench.figures import Figure, at_least, at_most, missing, shown
from bench.ingest_cluster import Simulation

HOUR = 3600.0


async def run(env: Env) -> list[Figure]:
    seeds = range(1, 2 if env.quick else 4)
    figures: list[Figure] = []
    for batches in (1_000,) if env.quick else (1_000, 10_000):
        env.say(f"{batches:,} batches on 10 places")
        ours = [await _run(Simulation(batches=batches, seed=seed)) for seed in seeds]
        # Minutes of CPU for the larger one: once says as much.
        alone = await _run(Simulation(batches=batches, looking=False))
        name = f"{batches:,} batches, 10 places"
        figures += [
            at_most(f"{name}: Jobs for each batch", [one.jobs_per_batch for one in ours], 1.05, ""),
            at_most(f"{name}: without a place at once", [one.most_unscheduled for one in ours], 7, "Jobs"),
            at_least(f"{name}: throughput / capacity", [one.throughput for one in ours], 0.95),
            shown(f"{name}, backoff alone: Jobs for each batch", [alone.jobs_per_batch], ""),
            shown(f"{name}, backoff alone: without a place at once", [alone.most_unscheduled], "Jobs"),
            shown(f"{name}, backoff alone: batches given up", [alone.given_up / batches], "x"),
        ]
    env.say("a cluster that grows")
    growing = Simulation(batches=8_000, grows_to=200, slots=100)
    grown = [(await _run(replace(growing, seed=seed))).full_at for seed in seeds]
    figures.append(
        at_most(
            "places grow with what waits, 10 to 200: time to 200",
            [(at or 24 * HOUR) / 60 for at in grown],
            20,
            "min",
            note="nodes of 10 places, each 90 s after the Jobs that need it; 4 workers with 100 slots",
        )
    )
    env.say("a cluster that schedules nothing for 4 h")
    closed = [await _run(Simulation(batches=600, closed_until=4 * HOUR, seed=seed)) for seed in seeds]
    figures += [
        at_most(
            "nothing scheduled for 4 h: creates in an hour",
            [max(n for hour, n in one.creates_by_hour.items() if hour < 4) for one in closed],
            40,
            "Jobs",
        ),
        at_most(
            "nothing scheduled for 4 h: time to 80 % of capacity afterwards",
            [(HOUR if one.recovered_at is None else one.recovered_at) / 60 for one in closed],
            3,
            "min",
        ),
    ]
    # Of a real scheduler, which this benchmark does not start: the tests' cluster has one.
    real = "the real scheduler, 5 places, 60 batches"
    figures += [
        missing(f"{real}: Jobs for each batch", "", "<= 1.1"),
        missing(f"{real}: without a place at once", "Jobs", "<= 6 Jobs"),
    ]
    return figures


async def _run(simulation: Simulation) -> Simulation:
    """On a thread: it has a loop of its own."""
    return await asyncio.to_thread(simulation.run)
