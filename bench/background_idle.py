"""What the six background jobs cost a control plane that has nothing else to do: all on against all off."""

from __future__ import annotations

import asyncio
import json

from bench.environment import Database, Env
from bench.figures import Figure, at_most, shown
from bench.paddock_processes import Serve, serving
from paddock.pass_metrics import JOBS

GOAL_PERCENT = 1.0
# In the place of the engine that is there by itself one that is not cached: no worker is here to read it.
ENGINES = json.dumps({"duckdb": {"type": "trino", "url": "https://trino.example"}})


async def run(env: Env) -> list[Figure]:
    seconds, rounds = (10, 1) if env.quick else (300, 1)
    more, costs = [], []
    async with env.database("background_idle") as database:
        for _ in range(rounds):
            off = await _percent(env, database, seconds, enabled=False)
            on = await _percent(env, database, seconds, enabled=True)
            more.append(on - off)
            costs.append(on)
            env.say(f"all on {on:.2f} % of a core, all off {off:.2f} %")
    return [
        at_most(
            f"serve and PostgreSQL idle for {seconds} s: all six on, less all off", more, GOAL_PERCENT, "% of a core"
        ),
        shown("the same, all on", costs, "% of a core"),
    ]


async def _percent(env: Env, database: Database, seconds: float, *, enabled: bool) -> float:
    async with serving(database, PADDOCK_ENGINES=ENGINES) as serve:
        for job in JOBS:
            await serve.ask("PATCH", f"/api/schedules/{job}", {"enabled": enabled})
        await _settled(serve)
        async with env.measure([serve.pid]) as measurement:
            await asyncio.sleep(seconds)
        return 100 * measurement.usage.cpu / measurement.usage.seconds


async def _settled(serve: Serve) -> None:
    """What a start does once is not what idling costs."""
    while any(job["status"] != "idle" for job in await serve.ask("GET", "/api/ops/jobs/status")):  # noqa: ASYNC110  in another process
        await asyncio.sleep(0.2)
    await asyncio.sleep(3)
