"""Runs a query to its end."""

from typing import Any

import pyarrow as pa

from paddock.engines.engine import Query
from paddock.engines.postgres.engine import PostgresEngine


async def read(engine: PostgresEngine, sql: str, **parameters: Any) -> pa.Table:
    async with engine.open(Query(sql, parameters)) as stream:
        batches = [batch async for batch in stream.batches()]
    schema = pa.schema([pa.field(column.name, column.type) for column in stream.columns])
    return pa.Table.from_batches(batches, schema)


async def values(engine: PostgresEngine, sql: str, **parameters: Any) -> list[Any]:
    """Of the first column."""
    found: list[Any] = (await read(engine, sql, **parameters)).column(0).to_pylist()
    return found
