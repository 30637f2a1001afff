"""`python -m bench.postgres_contenders NAME URL PATH`: exports the table once and says what it cost this process.

All of them write through the same ParquetWriter. Imports are not counted.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pyarrow as pa
import pyarrow.parquet as pq
import uvloop

PASSWORD_VARIABLE = "BENCH_PASSWORD"
GROUP_ROWS = 131_072
SQL = "SELECT * FROM orders"
SCHEMA = pa.schema(
    [
        ("order_id", pa.int64()),
        ("customer_id", pa.int64()),
        ("quantity", pa.int32()),
        ("price", pa.decimal128(12, 2)),
        ("discount", pa.float64()),
        ("returned", pa.bool_()),
        ("status", pa.string()),
        ("shipped", pa.date32()),
        ("changed", pa.timestamp("us")),
        ("comment", pa.string()),
    ]
)


class Writer:
    def __init__(self, path: Path) -> None:
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._writer = pq.ParquetWriter(
            path, SCHEMA, compression="zstd", compression_level=1, use_dictionary=["status"], version="2.6"
        )

    def write(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= GROUP_ROWS:
            self._flush()

    def close(self) -> None:
        self._flush()
        self._writer.close()

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows = [], 0


def _with_password(url: str) -> str:
    parts = urlsplit(url)
    login = f"{parts.username}:{os.environ[PASSWORD_VARIABLE]}@{parts.hostname}:{parts.port}"
    return urlunsplit(parts._replace(netloc=login))


def psycopg_rows(url: str) -> Callable[[], Iterator[pa.RecordBatch]]:
    import psycopg

    def batches() -> Iterator[pa.RecordBatch]:
        with psycopg.connect(_with_password(url)) as connection, connection.cursor("export") as cursor:
            cursor.execute(SQL)
            while rows := cursor.fetchmany(10_000):
                columns = zip(*rows, strict=True)
                arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    return batches


def adbc(url: str) -> Callable[[], Iterator[pa.RecordBatch]]:
    from adbc_driver_postgresql import dbapi

    def batches() -> Iterator[pa.RecordBatch]:
        with dbapi.connect(_with_password(url)) as connection, connection.cursor() as cursor:
            cursor.execute(SQL)
            for batch in cursor.fetch_record_batch():
                # Its numeric is an opaque string.
                arrays = [getattr(column, "storage", column).cast(field.type) for column, field in _pairs(batch)]
                yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    return batches


def connectorx(url: str, kind: str = "arrow_stream") -> Callable[[], Iterator[pa.RecordBatch]]:
    import connectorx as cx

    def batches() -> Iterator[pa.RecordBatch]:
        found: Any = cx.read_sql(_with_password(url), SQL, return_type=kind, **_batched(kind))
        for batch in found if kind == "arrow_stream" else found.to_batches():
            # Its numeric is a decimal(38, 10), its stream's int4 an int64.
            arrays = [column.cast(field.type) for column, field in _pairs(batch)]
            yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    return batches


def _batched(kind: str) -> dict[str, Any]:
    return {"batch_size": 10_000} if kind == "arrow_stream" else {}


def _pairs(batch: pa.RecordBatch) -> Iterator[tuple[pa.Array, pa.Field]]:
    return zip(batch.columns, SCHEMA, strict=True)


def ours(url: str) -> Callable[[], AsyncIterator[pa.RecordBatch]]:
    from paddock.engines.engine import Query
    from paddock.engines.postgres.engine import PostgresEngine
    from paddock.engines.settings import PostgresSettings

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        engine = PostgresEngine("bench", PostgresSettings(url=url, password_env=PASSWORD_VARIABLE))
        async with engine.open(Query(SQL)) as stream:
            async for batch in stream.batches():
                yield batch

    return batches


def limit(url: str) -> Callable[[], AsyncIterator[pa.RecordBatch]]:
    """What no decoder can go below: the same rows, drained in binary, and a table that is already there, written."""
    import asyncpg

    source = pq.read_table(os.environ["BENCH_TABLE"]).to_batches(10_000)

    async def batches() -> AsyncIterator[pa.RecordBatch]:
        connection = await asyncpg.connect(_with_password(url))
        await connection.copy_from_query(SQL, output=_nothing, format="binary")
        await connection.close()
        for batch in source:
            yield batch

    return batches


async def _nothing(_: bytes) -> None:
    pass


CONTENDERS: dict[str, Callable[[str], Callable[[], Any]]] = {
    "ours": ours,
    "psycopg": psycopg_rows,
    "adbc": adbc,
    "connectorx": connectorx,
    "connectorx_whole": lambda url: connectorx(url, "arrow"),
    "limit": limit,
}


async def export(batches: Callable[[], Any], path: Path) -> None:
    writer = Writer(path)
    found = batches()
    if hasattr(found, "__aiter__"):
        async for batch in found:
            await asyncio.to_thread(writer.write, batch)
    else:
        for batch in found:
            writer.write(batch)
    writer.close()


def main() -> None:
    name, url, path = sys.argv[1:]
    pa.set_cpu_count(1)
    batches = CONTENDERS[name](url)
    wall, cpu = time.perf_counter(), time.process_time()
    uvloop.run(export(batches, Path(path)))
    spent = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    print(json.dumps({**spent, "rss": _most_memory()}))


def _most_memory() -> float:
    """In MiB. Not getrusage's: that begins with the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    main()
