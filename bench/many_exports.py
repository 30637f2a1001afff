"""Two hundred exports at once from Trino to S3 in one worker: its memory, and how late its event loop comes.

Control plane, worker, Trino (one of our own that has its answers ready) and S3 (SeaweedFS) are processes of their own,
set up as they are by default but for the room for so many exports. Memory is the sum of the greatest resident sizes of
all processes of the worker, what they share counted in each. A job beside the exports measures the loop that they share.

Two hundred files of 50 MB are 10 GB through two cores, which also have to be Trino and S3: that takes many minutes. So by
default the two hundred are smaller, and the full size is that of fewer exports, still more than run at a time.
BENCH_FULL_SIZE=1 makes two hundred of the full size.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import psutil

from bench.environment import Env
from bench.figures import Figure
from bench.paddock_processes import Serve, serving, working
from bench.process import contender
from tests.storage.servers import seaweed

EXPORTS = 200
QUICK_EXPORTS = 8
FULL_SIZE = "BENCH_FULL_SIZE"
GOAL_MIB = 512
GOAL_LAG_MS = 100
DONE_WITHIN = 900.0


@dataclass(frozen=True)
class Load:
    """`times` repeats the table's rows, so that the server need not hold them."""

    name: str
    table: str
    way: str
    times: int
    exports: int = EXPORTS


LOADS = (
    # 1 MB pages whose files are nearly as large as they are: the size that counts, for the least work.
    Load("packed rows, 1 MB pages", "packed:14000:1400", "direct", 1),
    Load("packed rows, full size", "packed:14000:1400", "direct", 7, exports=16),
    # Decoded by way of Python objects, 8 MB at a time: what holds the interpreter longest.
    Load("nested rows, 8 MB segments", "nested:22000:22000", "spooled", 1),
)


@dataclass(frozen=True)
class Seen:
    seconds: float
    bytes_each: float
    ticks: dict[str, Any]
    memory: dict[str, float]
    cpu: float


async def run(env: Env) -> list[Figure]:
    figures = []
    for load in LOADS:
        exports = EXPORTS if FULL_SIZE in os.environ else load.exports
        exports = min(exports, QUICK_EXPORTS) if env.quick else exports
        seen = await _exported(env, load, exports, 1 if env.quick else load.times)
        env.say(f"{load.name}: {seen.seconds:.0f} s, {seen.memory}")
        figures += _figures(load, exports, seen)
    return figures


async def _exported(env: Env, load: Load, exports: int, times: int) -> Seen:
    async with contender("bench.trino_server", load.table) as trino:
        url = (await trino.expect("ready"))["url"]
        with seaweed() as s3:
            environment = {
                **s3.environ,
                "PADDOCK_OBJECT_STORE": s3.url,
                "PADDOCK_ENGINES": json.dumps({"bench": {"type": "trino", "url": url, "requires_role": False}}),
            }
            async with (
                env.database("many_exports") as database,
                serving(database, **environment) as serve,
                working(serve, batch=exports + 1, in_flight=1, **environment) as worker,
            ):
                sql = f"SELECT * FROM {load.table.partition(':')[0]}.{load.way} /* {times} times */"
                return await _run(serve, worker, sql, exports)


async def _run(serve: Serve, worker: int, sql: str, exports: int) -> Seen:
    running = serve.folder / "running"
    running.touch()
    ticking = await serve.ask("POST", "/api/jobs", {"kind": "tick", "payload": {"while_exists": str(running)}})
    began, cpu = time.monotonic(), _cpu(worker)
    body = {"engine": "bench", "sql": sql}
    made = await asyncio.gather(*(serve.ask("POST", "/api/exports", body) for _ in range(exports)))
    sizes = [await _ended(serve, f"/api/exports/{export['id']}") for export in made]
    seconds, cpu = time.monotonic() - began, _cpu(worker) - cpu
    memory = _memory(worker)
    running.unlink()
    ticks = await _ended(serve, f"/api/jobs/{ticking['id']}")
    return Seen(seconds, sum(size["bytes"] for size in sizes) / exports, ticks["result"], memory, cpu)


async def _ended(serve: Serve, path: str) -> dict[str, Any]:
    deadline = time.monotonic() + DONE_WITHIN
    while True:
        found: dict[str, Any] = {"status": "pending"}
        # A connection that rested too long was closed: the next question opens another.
        with contextlib.suppress(aiohttp.ClientConnectionError):
            found = await serve.ask("GET", path)
        if found["status"] == "completed":
            return found
        if found["status"] not in ("pending", "running", "claimed") or time.monotonic() > deadline:
            raise RuntimeError(f"{path} is {found['status']}: {found.get('error')}")
        await asyncio.sleep(0.5)


def _memory(worker: int) -> dict[str, float]:
    """MiB of each process of the worker at its largest."""
    root = psutil.Process(worker)
    found: dict[str, float] = {}
    for process in (root, *root.children(recursive=True)):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{process.pid}/status").read_text()
            name = "supervisor" if process == root else f"runner {len(found)}"
            found[name] = int(status.partition("VmHWM:")[2].split()[0]) / 1024
    return found


def _cpu(worker: int) -> float:
    root = psutil.Process(worker)
    total = 0.0
    for process in (root, *root.children(recursive=True)):
        times = process.cpu_times()
        total += times.user + times.system
    return total


def _figures(load: Load, exports: int, seen: Seen) -> list[Figure]:
    memory = sum(seen.memory.values())
    lag = 1e3 * seen.ticks["p99"]
    size = f"{exports} exports of {seen.bytes_each / 1e6:.1f} MB in {seen.seconds:.0f} s"
    parts = ", ".join(f"{name} {mib:.0f}" for name, mib in seen.memory.items())
    return [
        Figure(
            f"{load.name}: memory of the worker",
            memory,
            "MiB",
            f"<= {GOAL_MIB} MiB",
            memory <= GOAL_MIB,
            note=f"{size}; {parts}",
        ),
        Figure(
            f"{load.name}: event loop late, p99",
            lag,
            "ms",
            f"<= {GOAL_LAG_MS} ms",
            lag <= GOAL_LAG_MS,
            note=f"{seen.ticks['ticks']:,} ticks; at most {1e3 * seen.ticks['most']:.0f} ms",
        ),
        Figure(f"{load.name}: event loop late, p50", 1e3 * seen.ticks["p50"], "ms"),
        Figure(f"{load.name}: written", exports * seen.bytes_each / 1e6 / seen.seconds, "MB/s"),
        Figure(
            f"{load.name}: CPU of the worker for 1 MB written", 1e3 * seen.cpu / (exports * seen.bytes_each / 1e6), "ms"
        ),
    ]
