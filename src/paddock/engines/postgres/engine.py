"""The engine `postgres`: proves a text, then reads it by COPY."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import pyarrow as pa

from paddock.engines.children.quoting import quoted
from paddock.engines.engine import Column, Described, Finding, Progress, Query, Started
from paddock.engines.postgres import browsing
from paddock.engines.postgres.decoding import Decoder
from paddock.engines.postgres.errors import translated
from paddock.engines.postgres.proving import WRAP, Proven, prove
from paddock.engines.postgres.session import Connection, connect, leave, session
from paddock.engines.settings import PostgresSettings
from paddock.jobs.errors import InfrastructureError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.storage.threads import on_cpu

# Large enough that the reader's fixed cost vanishes, small enough for hundreds of exports in one process.
BLOCK_BYTES = 2 << 20
PREVIEW_SECONDS = 60.0

# Terminated, not cancelled: a backend that waits for its client to read does not hear a cancel. It is the same login,
# which may do that to its own; the start of the transaction says that it is still the same query.
_TERMINATE = """
SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
WHERE pid = $1 AND backend_start = $2::text::timestamptz AND xact_start = $3::text::timestamptz
"""


class PostgresEngine:
    type = "postgres"
    requires_role = False

    def __init__(self, name: str, settings: PostgresSettings) -> None:
        self.name = name
        self.settings = settings

    async def describe(self, query: Query) -> Described:
        async with session(self.name, self.settings, query, self._quick()) as opened:
            proven = await prove(self.name, opened.connection, query)
        return Described(proven.columns, direct_only="PostgreSQL does not write to object stores.")

    async def preview(self, query: Query, rows: int) -> tuple[Sequence[Column], pa.Table]:
        async with session(self.name, self.settings, query, self._quick()) as opened:
            proven = await prove(self.name, opened.connection, query)
            first = Proven(WRAP.format(sql=proven.sql, limit=max(0, rows)), proven.columns)
            async with copying(self.name, opened.connection, first) as stream:
                batches = [batch async for batch in stream.batches()]
        return proven.columns, pa.Table.from_batches(batches, stream.schema)

    @asynccontextmanager
    async def open(self, query: Query, started: Started | None = None) -> AsyncIterator["PostgresStream"]:
        async with session(self.name, self.settings, query, self.settings.statement_timeout_seconds) as opened:
            proven = await prove(self.name, opened.connection, query)
            if started is not None:
                await started(opened.handle)
            async with copying(self.name, opened.connection, proven) as stream:
                stream.progress.query_id = str(opened.handle["backend_pid"])
                yield stream

    async def cancel(self, handle: JsonObject) -> None:
        connection = await connect(self.name, self.settings, Query(""))
        try:
            await connection.execute("SET timezone = 'UTC'")
            await connection.fetch(_TERMINATE, handle["backend_pid"], handle["backend_start"], handle["xact_start"])
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as problem:
            raise translated(self.name, problem) from problem
        finally:
            await leave(connection)

    async def catalogs(self, query: Query) -> Sequence[str]:
        async with self._browsing(query) as connection:
            return await browsing.catalogs(connection)

    async def schemas(self, query: Query, catalog: str) -> Sequence[str]:
        async with self._browsing(query) as connection:
            return await browsing.schemas(connection, catalog)

    async def tables(self, query: Query, catalog: str, schema: str) -> Sequence[str]:
        async with self._browsing(query) as connection:
            return await browsing.tables(connection, catalog, schema)

    async def table_columns(self, query: Query, catalog: str, schema: str, table: str) -> Sequence[Column]:
        async with self._browsing(query) as connection:
            return await browsing.columns(connection, catalog, schema, table)

    def table_query(self, catalog: str | None, schema: str | None, table: str) -> str:
        names = [catalog if schema else None, schema, table]
        return "SELECT * FROM " + ".".join(quoted(name) for name in names if name)  # noqa: S608  quoted

    def metadata_query(self, catalog: str, schema: str) -> str:
        return browsing.metadata_query(schema)

    async def check(self, query: Query) -> Sequence[Finding]:
        try:
            async with self._browsing(query) as connection:
                return await browsing.findings(connection, self.settings)
        except InfrastructureError as problem:
            return [Finding("connection", False, problem.message, problem.hint)]

    async def close(self) -> None:
        """Every query has a connection of its own: nothing is held."""

    def _quick(self) -> float:
        return min(PREVIEW_SECONDS, self.settings.statement_timeout_seconds)

    @asynccontextmanager
    async def _browsing(self, query: Query) -> AsyncIterator[Connection]:
        async with session(self.name, self.settings, query, self._quick()) as opened:
            try:
                yield opened.connection
            except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as problem:
                raise translated(self.name, problem) from problem


class PostgresStream:
    """Blocks come in while the one before is decoded and a third is used; then the server waits."""

    def __init__(self, name: str, proven: Proven) -> None:
        self.columns: Sequence[Column] = proven.columns
        self.progress = Progress(phase="running")
        self._name = name
        self._decoder = Decoder(proven.columns)
        self.schema: pa.Schema = self._decoder.schema
        self._blocks: asyncio.Queue[bytes | BaseException | int] = asyncio.Queue(maxsize=1)
        self._filling: list[bytes] = []
        self._filled = 0
        self._wanted = asyncio.Event()

    async def begin(self) -> int:
        """The query runs already; the server waits with its rows until somebody reads them."""
        return 2 * BLOCK_BYTES

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        self._wanted.set()
        rows = 0
        while isinstance(block := await self._blocks.get(), bytes):
            self.progress.phase = "reading"
            batch = await on_cpu(self._decoder.decode, block)
            del block
            rows += batch.num_rows
            yield batch
        if isinstance(block, BaseException):
            raise translated(self._name, block) from block
        if rows != block:
            raise TransientResourceError(f"PostgreSQL sent {block} rows, {rows} were read.", code="rows_missing")
        self.progress.phase = "finished"

    async def copy(self, connection: Connection, sql: str) -> None:
        """Ends with the server's own count of rows, or with what went wrong."""
        try:
            status = await connection.copy_from_query(
                f"\n{sql}\n", output=self._take, format="csv", null="", encoding="UTF8"
            )
        except Exception as problem:
            # Whatever it is, `batches` raises it: it would wait forever otherwise.
            await self._blocks.put(problem)
            return
        await self._flush()
        await self._blocks.put(int(status.rpartition(" ")[2]))

    async def _take(self, rows: bytes) -> None:
        await self._wanted.wait()
        self._filling.append(rows)
        self._filled += len(rows)
        if self._filled >= BLOCK_BYTES:
            await self._flush()

    async def _flush(self) -> None:
        if self._filling:
            block = b"".join(self._filling)
            self._filling, self._filled = [], 0
            await self._blocks.put(block)


@asynccontextmanager
async def copying(name: str, connection: Connection, proven: Proven) -> AsyncIterator[PostgresStream]:
    stream = PostgresStream(name, proven)
    copying = asyncio.create_task(stream.copy(connection, proven.sql))
    try:
        yield stream
    finally:
        # Still running: whoever reads left early. The driver then cancels the query at the server.
        copying.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await copying
