"""The schema cache of a large warehouse: the first merge of a reading against one bare COPY of the same rows into the same table,
and the same refresh again. CPU of this process and of PostgreSQL together; what it adds to our memory."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import orjson
import psutil

from bench.background_passes import opened
from bench.environment import Database, Env
from bench.figures import Figure, at_most
from paddock.db.pool import Transaction
from paddock.exports.schema import merging
from paddock.exports.schema.reading import TABLES_IN_A_PAGE
from paddock.storage.store import Store, open_store

ENGINE, CATALOG = "warehouse", "hive"
WORDS = ("customer", "order", "invoice", "route", "flight", "payment", "session", "device", "visit", "contract")
TYPES = ("bigint", "varchar", "timestamp(6)", "double", "decimal(18, 2)", "boolean")
COLUMNS = "engine, catalog, schema, name, columns, types, digest, lower_name, lower_columns"


@dataclass(frozen=True)
class Warehouse:
    schemas: int
    tables: int
    columns: int = 20

    def rows(self, schema: int) -> list[tuple[str, list[str], list[str]]]:
        """In the order of their names."""
        made = []
        for n in range(self.tables):
            number = schema * self.tables + n
            names = [f"{WORDS[(number + c) % 10]}_{WORDS[(number * 7 + c) % 10]}_{c}" for c in range(self.columns)]
            types = [TYPES[(number + c) % len(TYPES)] for c in range(self.columns)]
            made.append((f"{WORDS[number % 10]}_{WORDS[number // 10 % 10]}_{number:06}", names, types))
        return sorted(made)


def warehouse(env: Env) -> Warehouse:
    """100,000 tables with 2,000,000 columns."""
    return Warehouse(10, 500) if env.quick else Warehouse(100, 1_000)


async def run(env: Env) -> list[Figure]:
    made = warehouse(env)
    ratios, again, growths, rewritten = [], [], [], []
    for _ in range(1 if env.quick else 3):
        async with env.database("schema_copy") as database, opened(database):
            copied = await _copied(env, database, made)
        with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
            store = open_store(folder)
            pages = await written(store, made)
            async with env.database("schema_merge") as database, opened(database) as (core, _):
                before = psutil.Process().memory_info().rss
                first, written_first, most = await _merged(env, core.db, store, pages)
                second, written_again, most_again = await _merged(env, core.db, store, pages)
        if written_first != made.schemas * made.tables:
            raise RuntimeError(
                f"{written_first:,} rows were written, and {made.schemas * made.tables:,} tables are there."
            )
        rewritten.append(float(written_again))
        ratios.append(first / copied)
        again.append(second / first)
        growths.append((max(most, most_again) - before) / 1e6)
        env.say(f"COPY {copied:.2f} s, merge {first:.2f} s, again {second:.2f} s, {growths[-1]:.0f} MB more")
    name = f"schema cache, {made.schemas * made.tables:,} tables"
    return [
        at_most(f"{name}: CPU of the first merge / of a bare COPY", ratios, 2.5),
        at_most(f"{name}: CPU of the same refresh again / of the first", again, 0.3),
        at_most(f"{name}: memory of the merging process above idle in both", growths, 100, "MB"),
        at_most(f"{name}: rows written by the same refresh again", rewritten, 0, "rows"),
    ]


async def written(store: Store, made: Warehouse) -> Sequence[str]:
    """The pages as a `metadata` job leaves them."""
    keys: list[str] = []
    for schema in range(made.schemas):
        rows = made.rows(schema)
        for first in range(0, len(rows), TABLES_IN_A_PAGE):
            some = rows[first : first + TABLES_IN_A_PAGE]
            last = first + TABLES_IN_A_PAGE >= len(rows)
            body: dict[str, Any] = {
                "catalog": CATALOG,
                "schema": f"schema_{schema:03}",
                "after": rows[first - 1][0] if first else "",
                "until": None if last else some[-1][0],
                "tables": [[name, columns, types, digest(columns, types)] for name, columns, types in some],
                "error": None,
            }
            keys.append(f"metadata/{len(keys):06}.json")
            await store.put(keys[-1], orjson.dumps(body))
    return keys


def digest(columns: Sequence[str], types: Sequence[str]) -> str:
    return hashlib.sha256(orjson.dumps(list(zip(columns, types, strict=True)))).hexdigest()[:32]


async def merged(db: Any, store: Store, pages: Sequence[str], job: UUID) -> AsyncIterator[int]:
    for page in pages:
        yield (await merging.merge_page(db, store, ENGINE, job, page, _ours)).written


async def _ours(_tx: Transaction) -> None:
    """Nobody takes it over."""


async def _merged(env: Env, db: Any, store: Store, pages: Sequence[str]) -> tuple[float, int, int]:
    """CPU, rows written, and the most memory on the way."""
    rows, most, process = 0, 0, psutil.Process()
    async with env.measure([os.getpid()]) as measurement:
        async for n in merged(db, store, pages, uuid4()):
            rows += n
            most = max(most, process.memory_info().rss)
    return measurement.usage.cpu, rows, most


async def _copied(env: Env, database: Database, made: Warehouse) -> float:
    """From a file that is ready, as the pages are: what COPY itself costs."""
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as folder:
        file = Path(folder) / "rows"
        async with database.connect() as connection:
            for schema in range(made.schemas):
                records = [
                    (
                        ENGINE, CATALOG, f"schema_{schema:03}", name, columns, types,
                        bytes.fromhex(digest(columns, types)), name.lower(), "\n".join(columns).lower(),
                    )
                    for name, columns, types in made.rows(schema)
                ]  # fmt: skip
                await connection.copy_records_to_table("schema_tables", records=records, columns=COLUMNS.split(", "))
            await connection.copy_from_table("schema_tables", output=file, columns=COLUMNS.split(", "))
            await connection.execute("TRUNCATE schema_tables")
            async with env.measure([os.getpid()]) as measurement:
                await connection.copy_to_table("schema_tables", source=file, columns=COLUMNS.split(", "))
    return measurement.usage.cpu
