"""Browsing and searching the schema cache of a large warehouse, through the control plane as a person asks it; and browsing from
the cache against asking the engine live through a worker."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from urllib.parse import quote
from uuid import uuid4

from bench.environment import Database, Env
from bench.figures import Figure, at_least, percentile
from bench.paddock_processes import Serve, serving, working
from bench.schema_merging import CATALOG, ENGINE, Warehouse, merged, warehouse, written
from paddock.db.pool import open_database
from paddock.storage.store import open_store

GOAL_MS, ABSENT_COLUMN_MS = 50.0, 150.0
FRESH = "INSERT INTO schema_engines (engine, refreshed_at, status) VALUES ($1, now(), 'success') ON CONFLICT DO NOTHING"


async def run(env: Env) -> list[Figure]:
    made = warehouse(env)
    calls = 30 if env.quick else 200
    async with env.database("schema_reading") as database:
        with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
            # Nobody asks it: it has a type that is answered from the cache.
            engines = json.dumps({ENGINE: {"type": "postgres", "url": "postgresql://reader@127.0.0.1/shop"}})
            settings = {"PADDOCK_ENGINES": engines, "PADDOCK_OBJECT_STORE": folder}
            async with serving(database, **settings) as serve:
                await serve.ask("PATCH", "/api/schedules/schema_cache", {"enabled": False})
                await _fill(database, folder, made)
                figures = [await _figure(serve, name, path, calls, goal) for name, path, goal in _questions(made)]
                async with working(serve, batch=1, in_flight=2, **settings):
                    figures.append(await _against_live(serve, calls // 5))
    return figures


async def _fill(database: Database, folder: str, made: Warehouse) -> None:
    store = open_store(folder)
    async with open_database(database.dsn, durable=1, relaxed=1) as db:
        async for _ in merged(db, store, await written(store, made), uuid4()):
            pass
    async with database.connect() as connection:
        await connection.execute(FRESH, ENGINE)
        await connection.execute("UPDATE schema_engines SET refreshed_at = now()")
        await connection.execute("VACUUM ANALYZE schema_tables")


def _questions(made: Warehouse) -> list[tuple[str, str, float]]:
    browse, search = f"/api/engines/{ENGINE}/browse", "/api/schema/search"
    columns = f"{browse}?catalog={CATALOG}&schema=schema_003&table={quote(made.rows(3)[0][0])}"
    return [
        ("browse the catalogs", browse, GOAL_MS),
        ("browse the columns of a table", columns, GOAL_MS),
        ("browse the schemas", f"{browse}?catalog={CATALOG}", GOAL_MS),
        ("browse the tables of a schema", f"{browse}?catalog={CATALOG}&schema=schema_003", GOAL_MS),
        ("search by a prefix", f"{search}?q=cus", GOAL_MS),
        ("search by a common substring", f"{search}?q=tomer", GOAL_MS),
        ("search by a rare substring", f"{search}?q=_000123", GOAL_MS),
        ("search by an absent substring", f"{search}?q={quote('no such name')}", GOAL_MS),
        ("search in columns, common", f"{search}?q=customer&in=columns", GOAL_MS),
        ("search in columns, absent", f"{search}?q={quote('no such name')}&in=columns", ABSENT_COLUMN_MS),
    ]


async def _figure(serve: Serve, name: str, path: str, calls: int, goal: float) -> Figure:
    samples = await _samples(lambda: serve.ask("GET", path), calls)
    slow = percentile(samples, 0.95)
    note = f"p50 {percentile(samples, 0.5):.1f} ms"
    return Figure(f"schema cache, {name}: p95", slow, "ms", f"< {goal:g} ms", slow < goal, note=note)


async def _samples(ask: Callable[[], Awaitable[object]], calls: int) -> list[float]:
    for _ in range(5):
        await ask()
    samples = []
    for _ in range(calls):
        began = time.perf_counter()
        await ask()
        samples.append(1e3 * (time.perf_counter() - began))
    return samples


async def _against_live(serve: Serve, calls: int) -> Figure:
    """The catalogs of both. Live from an engine for local files, which answers sooner than a Trino does: the ratio there is
    larger."""
    cached = await _samples(lambda: serve.ask("GET", f"/api/engines/{ENGINE}/browse"), calls)
    live = await _samples(lambda: serve.ask("GET", "/api/engines/duckdb/browse"), calls)
    ratio = percentile(live, 0.5) / percentile(cached, 0.5)
    return at_least("schema cache, browse live through a worker / from the cache: p50", [ratio], 5, note="DuckDB")
