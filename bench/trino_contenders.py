"""`python -m bench.trino_contenders NAME URL`: exports each query it is told, and says what that cost this process.

Both write zstd 1 in groups of 128 Ki rows. Ours has the collector settled, as a worker has.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import uvloop

from bench.process import say, words
from bench.trino_pages import _ready
from paddock import garbage

GROUP_ROWS = 131_072
FETCHED = 10_000

Export = Callable[[str, Path], Awaitable[None]]


def official(url: str) -> Export:
    """What the users of the official client write: `fetchmany`, an array for each column, Arrow's Parquet writer. The
    file's types are ours: they would have to know them as well."""
    import trino

    from paddock.engines.trino.types import column_of

    parts = urlsplit(url)
    connection = trino.dbapi.connect(host=parts.hostname, port=parts.port, user="bench", source="bench")

    async def export(sql: str, folder: Path) -> None:
        cursor = connection.cursor()
        cursor.execute(sql)
        rows = cursor.fetchmany(FETCHED)
        columns = [column_of(column) for column in cursor._query.columns]
        schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        ready = [_ready(column.type) if pa.types.is_nested(column.type) else None for column in columns]
        writer = pq.ParquetWriter(folder / "part-00000.parquet", schema, compression="zstd", compression_level=1)
        waiting: list[pa.RecordBatch] = []
        while rows:
            waiting.append(_batch(rows, schema, ready))
            if sum(batch.num_rows for batch in waiting) >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(waiting), row_group_size=2 * GROUP_ROWS)
                waiting = []
            rows = cursor.fetchmany(FETCHED)
        if waiting:
            writer.write_table(pa.Table.from_batches(waiting), row_group_size=2 * GROUP_ROWS)
        writer.close()

    return export


def _batch(rows: list[Any], schema: pa.Schema, ready: list[Callable[[Any], Any] | None]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [
        pa.array(column if make is None else [make(value) for value in column], field.type)
        for column, field, make in zip(columns, schema, ready, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def ours(url: str) -> Export:
    """All that a worker does for an export but its job: the gate, the stream, the files, their checks, the manifest."""
    from paddock.engines.engine import Query
    from paddock.engines.settings import TrinoSettings
    from paddock.engines.trino.engine import TrinoEngine
    from paddock.exports import arrow_types
    from paddock.exports.writing.options import OutputOptions
    from paddock.exports.writing.output import Output
    from paddock.storage.drafts import Draft
    from paddock.storage.scratch import Scratch
    from paddock.storage.store import open_store

    engine = TrinoEngine("bench", TrinoSettings(url=url, requires_role=False))

    async def export(sql: str, folder: Path) -> None:
        scratch = Scratch(folder / "scratch", 4 << 30)
        draft = Draft(open_store(str(folder / "store")), "bench", "0" * 32)
        async with engine.open(Query(sql)) as stream:
            conform = arrow_types.conformer(stream.columns, None)
            output = Output(draft, scratch, conform.schema, "parquet", OutputOptions())
            async for batch in stream.batches():
                await output.write(conform(batch))
            await output.close()
        await draft.seal({})
        scratch.close()

    return export


CONTENDERS: dict[str, Callable[[str], Export]] = {"official": official, "ours": ours}


async def main() -> None:
    name, url = sys.argv[1:]
    export = CONTENDERS[name](url)
    if name == "ours":
        garbage.settle()
    say("ready")
    async for word in words():
        sql, folder = word.split("\t")
        wall, cpu = time.perf_counter(), time.process_time()
        await export(sql, Path(folder))
        say("exported", cpu=time.process_time() - cpu, wall=time.perf_counter() - wall, rss=most_memory())


def most_memory() -> float:
    """In MiB. Not getrusage's: that begins with the parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    uvloop.run(main())
