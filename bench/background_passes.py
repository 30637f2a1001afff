"""Passes with nothing to do, which is what most of them find: what that costs at production's size.

Reconciliation of as many pods as instances against both lists read whole and compared in dicts; export_reconciliation among
many live export jobs and much history against few and none. CPU of this process and of PostgreSQL together.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import tracemalloc
from bisect import bisect_right
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from uuid import UUID

import asyncpg
from prometheus_client import CollectorRegistry

from bench.environment import Database, Env
from bench.figures import Figure, at_most
from bench.paddock_peer import seed_finished
from paddock.background import declared, export_reconciliation, reconciliation, records
from paddock.background.ticks import Budget, Tick
from paddock.config import Config
from paddock.db.migrate import migrate
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.runtimes.runtime import Found, Look, RuntimeWords, Start, Usage

MADE_AT = datetime(2026, 1, 1, tzinfo=UTC)
INSTANCES = """
INSERT INTO instances (id, owner, name, status, wrapper_type, mapping_id, mapping_version, cpu_cores, memory_gb, memory_asked,
    ttl, inactivity_timeout, generation, generation_number, pod_name, token, started_at, expires_at)
SELECT id, 'owner', 'graph', 'running', 'ladybug', id, 1, 1, 1, false, '1 day', '4 hours', gen_random_uuid(), 1,
    'ladybug-wrapper-' || id || '-1', 'token', paddock_now(), paddock_now() + interval '1 day'
FROM (SELECT gen_random_uuid() AS id FROM generate_series(1, $1)) made
RETURNING id, generation, pod_name
"""
LIVE_EXPORTS = """
INSERT INTO jobs (id, due_at, created_at, priority, kind, status, owner, payload, waiting_on)
SELECT paddock_id(paddock_now(), n), paddock_now() + interval '1 hour', paddock_now(), 3, 'export',
    CASE WHEN n % 2 = 0 THEN 'submitted' ELSE 'pending' END, 'owner', '{}', CASE WHEN n % 2 = 0 THEN 'query q' END
FROM generate_series(1, $1) n
"""


@dataclass
class Listed:
    """A runtime that only tells what runs."""

    pods: Sequence[Found]
    words = RuntimeWords("Pod", "Kubernetes")
    grows = False

    def __post_init__(self) -> None:
        self.names = [pod.name for pod in self.pods]

    async def start(self, start: Start) -> bool:
        raise NotImplementedError

    def alongside(self, changed: Callable[[UUID], None]) -> contextlib.AbstractAsyncContextManager[None]:
        raise NotImplementedError

    async def get(self, name: str, look: Look = "now") -> Found | None:
        raise NotImplementedError

    async def release(self, name: str, uid: str) -> None:
        raise NotImplementedError

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        raise NotImplementedError

    async def take_back(self, name: str, uid: str, memory_bytes: int) -> None:
        raise NotImplementedError

    async def list(self, after: str = "", limit: int = 100) -> Sequence[Found]:
        first = bisect_right(self.names, after)
        return self.pods[first : first + limit]

    async def logs(self, name: str) -> str | None:
        raise NotImplementedError

    async def delete(
        self, name: str, uid: str | None = None, grace: timedelta | None = None, *, keep_loaded: bool = False
    ) -> bool:
        raise NotImplementedError

    async def usage(self, name: str) -> Usage | None:
        return None

    async def memory_bytes(self) -> int | None:
        return None


@contextlib.asynccontextmanager
async def opened(database: Database) -> AsyncIterator[tuple[Core, Config]]:
    await migrate(database.dsn)
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        config = Config(data=Path(folder), object_store=str(Path(folder) / "store"))
        kinds = Kinds(all_kinds(config))
        async with open_core(database.dsn, kinds, CoreSettings(), metrics=Metrics(CollectorRegistry())) as core:
            await declared.at_start(core, config)
            yield core, config


async def run(env: Env) -> list[Figure]:
    return [*await _reconciliation(env), *await _export_reconciliation(env)]


async def _tick(core: Core, config: Config) -> Tick:
    return Tick(core=core, config=config, now=await records.now(core.db), budget=Budget(timedelta(hours=1)))


async def _cpu(env: Env, work: Callable[[], Awaitable[object]]) -> float:
    """Seconds of one; the clock of the CPU ticks in hundredths, so it is taken over as many as fit."""
    await work()
    done, until = 0, time.perf_counter() + (0.5 if env.quick else 5)
    async with env.measure([os.getpid()]) as measurement:
        while time.perf_counter() < until:
            await work()
            done += 1
    # One tick at least: on a busy machine a short round may see none.
    return max(measurement.usage.cpu, 0.01) / done


async def _reconciliation(env: Env) -> list[Figure]:
    few, many = (100, 1_000) if env.quick else (1_000, 10_000)
    peaks, ours, theirs = [], list[float](), list[float]()
    for count in (few, many):
        async with env.database("reconciliation") as database, opened(database) as (core, config):
            async with database.connect() as connection:
                rows = await connection.fetch(INSTANCES, count)
                await connection.execute("ANALYZE instances")
            runtime = Listed(_pods(rows))
            one, whole = partial(_reconciled, core, config, runtime), partial(_compared_whole, core, runtime)
            ours, theirs = [], []
            for _ in range(1 if count == few else 5):
                ours.append(await _cpu(env, one))
                theirs.append(await _cpu(env, whole))
                env.say(f"{count:,} instances: {1e3 * ours[-1]:.0f} ms, compared whole {1e3 * theirs[-1]:.0f} ms")
            peaks.append(await _peak(one))
    name = f"reconciliation of {many:,} instances, nothing to do"
    ratios = [our / their for our, their in zip(ours, theirs, strict=True)]
    return [
        at_most(f"{name}: CPU / both lists compared whole", ratios, 3),
        Figure(
            f"{name}: CPU", sorted(ours)[len(ours) // 2], "s", "< 1 s", sorted(ours)[len(ours) // 2] < 1, tuple(ours)
        ),
        at_most(f"{name}: peak memory / that of {few:,}", [peaks[1] / peaks[0]], 1.2),
    ]


async def _reconciled(core: Core, config: Config, runtime: Listed) -> None:
    tick = await _tick(core, config)
    await reconciliation.run(tick, runtime=runtime)
    if tick.found:
        raise RuntimeError(f"It found {dict(tick.found)}: there was nothing to find.")


def _pods(rows: Sequence[asyncpg.Record]) -> list[Found]:
    made = [
        Found(
            name=row["pod_name"],
            uid=str(row["generation"]),
            instance=UUID(str(row["id"])),
            generation=row["generation"],
            state="up",
            made_at=MADE_AT,
        )
        for row in rows
    ]
    return sorted(made, key=lambda pod: pod.name)


async def _compared_whole(core: Core, runtime: Listed) -> None:
    pods = {pod.name: pod for pod in await runtime.list("", 10**9)}
    async with core.db.transaction() as tx:
        rows = {
            row["pod_name"]: row
            for row in await tx.fetch(
                "SELECT id, pod_name, generation, status FROM instances WHERE pod_name IS NOT NULL"
            )
        }
    if [name for name in pods if name not in rows] or [name for name in rows if name not in pods]:
        raise RuntimeError("There was nothing to find.")


async def _peak(work: Callable[[], Awaitable[None]]) -> int:
    tracemalloc.start()
    try:
        await work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


async def _export_reconciliation(env: Env) -> list[Figure]:
    live, history = (5_000, 50_000) if env.quick else (100_000, 1_000_000)
    async with (
        env.database("few_exports") as small,
        env.database("many_exports") as large,
        opened(small) as (core, config),
        opened(large) as (crowded, _),
    ):
        for database, count in ((small, 100), (large, live)):
            async with database.connect() as connection:
                await connection.execute(LIVE_EXPORTS, count, timeout=600)
                await connection.execute("ANALYZE jobs", timeout=600)
        await seed_finished(large, history)
        ratios = []
        for _ in range(5):
            calm = await _cpu(env, partial(_nothing_to_settle, core, config))
            busy = await _cpu(env, partial(_nothing_to_settle, crowded, config))
            ratios.append(busy / calm)
            env.say(f"{1e3 * calm:.2f} ms among 100 jobs, {1e3 * busy:.2f} ms among {live:,}")
    name = f"export_reconciliation among {live:,} live export jobs and {history:,} in history: CPU / among 100 and none"
    return [at_most(name, ratios, 1.5)]


async def _nothing_to_settle(core: Core, config: Config) -> None:
    tick = await _tick(core, config)
    await export_reconciliation.run(tick)
    if tick.found:
        raise RuntimeError(f"It found {dict(tick.found)}: there was nothing to find.")
