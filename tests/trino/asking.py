"""What tests ask of a Trino, past the client they test."""

from typing import Any

import httpx2
import pyarrow as pa

from paddock.engines.engine import Query, Started
from paddock.engines.trino.engine import TrinoEngine
from paddock.jobs.errors import InfrastructureError
from paddock.jobs.model import JsonObject
from tests.trino.server import TrinoServer

_NOTHING = Query("")


async def read(engine: TrinoEngine, sql: str, started: Started | None = None, **given: Any) -> pa.Table:
    """As an export does: to the first rows, then all of them."""
    async with engine.open(Query(sql, **given), started) as stream:
        await stream.begin()
        batches = [batch async for batch in stream.batches()]
    schema = pa.schema([pa.field(column.name, column.type) for column in stream.columns])
    return pa.Table.from_batches(batches, schema)


async def make_schema(engine: TrinoEngine, name: str, query: Query = _NOTHING) -> None:
    """The other test process may make the same one in this moment: then Trino finds it there, `IF NOT EXISTS` or not."""
    try:
        await engine.rows(f"CREATE SCHEMA IF NOT EXISTS {name}", query)
    except InfrastructureError as problem:
        if "already exists" not in problem.message:
            raise


class Noting:
    """A `started` that remembers."""

    def __init__(self) -> None:
        self.handle: JsonObject = {}

    async def __call__(self, handle: JsonObject) -> None:
        self.handle = handle


async def query_info(server: TrinoServer, query_id: str, user: str = "admin") -> dict[str, Any]:
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.get(f"{server.url}/v1/query/{query_id}", headers={"X-Trino-User": user})
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found


async def query_status(server: TrinoServer, query_id: str) -> int:
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.get(f"{server.url}/v1/query/{query_id}", headers={"X-Trino-User": "admin"})
        return answer.status_code
