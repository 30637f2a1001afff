"""What tests ask of a Trino, past the client they test."""

import asyncio
import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def alone(server: TrinoServer) -> Iterator[None]:
    """No other test process is here meanwhile: what they share is made once, and whole before anybody uses it."""
    with (server.folder / "making.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


ROLES = [f"exporter{number}" for number in range(50)]


async def make_roles(admin: TrinoEngine) -> None:
    """`ROLES` of the catalog `hivesec`, granted to `lab`. To be called `alone`."""
    query = Query("", role="admin")
    made = {str(row[0]) for row in await admin.rows("SHOW ROLES FROM hivesec", query)}
    for role in [role for role in ROLES if role not in made]:
        await admin.rows(f"CREATE ROLE {role} IN hivesec", query)
        await admin.rows(f"GRANT {role} TO USER lab IN hivesec", query)


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


async def query_ended(server: TrinoServer, query_id: str) -> dict[str, Any]:
    """What Trino says of it once it is over: to be told to stop is not yet to have stopped."""
    async with asyncio.timeout(60):
        while (info := await query_info(server, query_id))["state"] not in ("FINISHED", "FAILED"):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return info


async def query_status(server: TrinoServer, query_id: str) -> int:
    async with httpx2.AsyncClient(timeout=60) as client:
        answer = await client.get(f"{server.url}/v1/query/{query_id}", headers={"X-Trino-User": "admin"})
        return answer.status_code
