"""What others notice of a dump: requests to the control plane, and the start of another job on the same worker.

Rounds in turn without and with a dump of a SQLite database at work; p99 of requests and the median of starts in each,
the medians of five rounds compared. One worker with one runner has both the dump and the other jobs.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from bench.dump_sqlite import fill
from bench.environment import Env
from bench.figures import Figure, percentile
from bench.paddock_processes import Serve, serving, working

BYTES = 400 << 20
QUICK_BYTES = 100 << 20
REQUESTS = 400
STARTS = 30


async def run(env: Env) -> list[Figure]:
    rounds = 2 if env.quick else 5
    found: dict[str, list[tuple[float, float]]] = {"idle": [], "dumping": []}
    async with env.database("dump_neighbours") as database, _databases(env) as databases:
        environment = {"PADDOCK_DUMPS_DATABASES": databases}
        async with serving(database, **environment) as serve:
            store = {"PADDOCK_OBJECT_STORE": str(serve.folder / "store"), **environment}
            async with working(serve, batch=10, in_flight=1, **store):
                await _round(serve)  # warm
                for number in range(rounds):
                    found["idle"].append(await _round(serve))
                    async with _dumping(serve):
                        found["dumping"].append(await _round(serve))
                    env.say(f"round {number + 1}: {found['idle'][-1]} idle, {found['dumping'][-1]} with a dump (ms)")
    return _figures(found)


@asynccontextmanager
async def _databases(env: Env) -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        path = Path(folder) / "narrow.db"
        fill(path, "narrow", QUICK_BYTES if env.quick else BYTES)
        yield json.dumps({"bench": {"type": "sqlite", "path": str(path)}})


@asynccontextmanager
async def _dumping(serve: Serve) -> AsyncIterator[None]:
    """While one is past its copy and writes parts; ended by cancelling it."""
    started = await serve.ask("POST", "/export/dump", {"async": True, "database": "bench", "format": "sql"})
    id = started["result"]["jobId"]
    while not (status := await _status(serve, id))["bytesWritten"]:
        if status["status"] not in ("pending", "in_progress"):
            raise RuntimeError(f"The dump did not run: {status}")
        await asyncio.sleep(0.05)
    yield
    status = await _status(serve, id)
    if status["status"] != "in_progress":
        raise RuntimeError(f"The dump ended before the round did: {status['status']}. Make the database larger.")
    await serve.ask("DELETE", f"/export/jobs/{id}")
    while (await _status(serve, id))["status"] == "in_progress":  # noqa: ASYNC110  another process tells
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)  # for its cleanup


async def _status(serve: Serve, id: str) -> dict[str, Any]:
    status: dict[str, Any] = (await serve.ask("GET", f"/export/jobs/{id}"))["result"]
    return status


async def _round(serve: Serve) -> tuple[float, float]:
    """p99 of a request and the median from a submission to its job's start, in milliseconds."""
    requests = []
    for _ in range(REQUESTS):
        began = time.perf_counter()
        await serve.ask("GET", "/api/jobs?limit=20")
        requests.append(1000 * (time.perf_counter() - began))
    starts = [await _start(serve) for _ in range(STARTS)]
    return percentile(requests, 0.99), statistics.median(starts)


async def _start(serve: Serve) -> float:
    """By the database's clock: from its row to its claim."""
    job = await serve.ask("POST", "/api/jobs", {"kind": "probe", "payload": {}})
    ended = await serve.ask("GET", f"/api/jobs/{job['id']}?wait=20")
    return 1000 * (_seconds(ended["started_at"]) - _seconds(ended["created_at"]))


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _figures(found: dict[str, list[tuple[float, float]]]) -> list[Figure]:
    figures = []
    for at, what in enumerate(("p99 of a request to the control plane", "another job's start, p50")):
        idle = [of[at] for of in found["idle"]]
        with_dump = [of[at] for of in found["dumping"]]
        before, value = statistics.median(idle), statistics.median(with_dump)
        goal = max(2 * before, before + 5)
        figures += [
            Figure(
                f"{what}, while a dump runs", value, "ms", f"<= {goal:.3g} ms", value <= goal, tuple(with_dump),
                "goal: twice the idle one, or 5 ms more",
            ),
            Figure(f"{what}, idle", before, "ms", rounds=tuple(idle)),
        ]  # fmt: skip
    return figures
