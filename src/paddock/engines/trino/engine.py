"""Trino and Starburst as an engine: the gate, queries as record batches, what there is to query, unload.

Parameters are written `:name` in the query. Trino binds their values by position (`EXECUTE IMMEDIATE ... USING`), so
that no value ever stands in the text.
"""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pyarrow as pa

from paddock.engines.engine import Described, Finding, Query, Started, Stream
from paddock.engines.settings import MISSING_ROLE, TrinoSettings
from paddock.engines.trino import checking, unloading
from paddock.engines.trino.casting import ordered
from paddock.engines.trino.client import Call, TrinoClient
from paddock.engines.trino.errors import Wrapped
from paddock.engines.trino.lexing import BOUND_COLUMNS, bind, bounded, one_query
from paddock.engines.trino.literals import quoted_name, text
from paddock.engines.trino.statement import Statement, all_rows, submit
from paddock.engines.trino.stream import TrinoStream
from paddock.engines.trino.types import TrinoColumn, check, column_of, wrap
from paddock.engines.trino.unloading import Lost, Unloaded, Unloading
from paddock.jobs.errors import UserMistake
from paddock.jobs.model import JsonObject

_ROLE = re.compile(r"[A-Za-z0-9_.-]{1,128}")


class TrinoEngine:
    type = "trino"

    def __init__(self, name: str, settings: TrinoSettings) -> None:
        self.name = name
        self.settings = settings
        self.requires_role = settings.requires_role
        self.client = TrinoClient(settings)
        # Known once the unload catalog was seen to be Hive.
        self.drops_keep_files = False

    def __repr__(self) -> str:
        return f"TrinoEngine({self.name!r})"

    async def describe(self, query: Query) -> Described:
        columns = await self._gate(query)
        # What a start would refuse is refused here already.
        check(columns)
        wrap(one_query(query.sql), columns)
        return Described(columns, unloading.why_not(self.settings, columns))

    async def preview(self, query: Query, rows: int) -> tuple[Sequence[TrinoColumn], pa.Table]:
        """In the query's order. One that is sorted and says itself how many rows it wants runs as it is."""
        columns = await self._gate(query)
        sql = one_query(query.sql)
        if ordered(sql):
            sql = wrap(sql, columns) or (sql if bounded(sql) else f"{sql}\nLIMIT {rows}")
        else:
            sql = f"SELECT * FROM (\n{sql}\n) LIMIT {rows}"  # noqa: S608  it passed the gate in these brackets
            sql = wrap(sql, columns) or sql
        taken: list[pa.RecordBatch] = []
        missing = rows
        async with self._opened(query, sql, columns) as stream:
            async for batch in stream.batches():
                taken.append(batch.slice(0, missing))
                missing -= taken[-1].num_rows
                if missing <= 0:
                    break
        return columns, pa.Table.from_batches(taken, _schema(columns))

    @asynccontextmanager
    async def open(self, query: Query, started: Started | None = None) -> AsyncIterator[Stream]:
        columns = await self._gate(query)
        check(columns)
        sql = one_query(query.sql)
        async with self._opened(query, wrap(sql, columns) or sql, columns, started) as stream:
            yield stream

    @asynccontextmanager
    async def _opened(
        self, query: Query, sql: str, columns: Sequence[TrinoColumn], started: Started | None = None
    ) -> AsyncIterator[TrinoStream]:
        async with await self._submit(query, sql, encodings=self.settings.encodings) as statement:
            if started is not None:
                await started({"query_id": statement.id, "next_uri": statement.next_uri})
            stream = TrinoStream(self.client, statement, columns)
            try:
                yield stream
            finally:
                await stream.close()

    async def cancel(self, handle: JsonObject) -> None:
        if uri := handle.get("next_uri"):
            await self.client.stop(uri, self.client.call())

    async def catalogs(self, query: Query) -> Sequence[str]:
        return await self._names("SHOW CATALOGS", query)

    async def schemas(self, query: Query, catalog: str) -> Sequence[str]:
        return await self._names(f"SHOW SCHEMAS FROM {quoted_name(catalog)}", query)

    async def tables(self, query: Query, catalog: str, schema: str) -> Sequence[str]:
        return await self._names(f"SHOW TABLES FROM {quoted_name(catalog, schema)}", query)

    async def table_columns(self, query: Query, catalog: str, schema: str, table: str) -> Sequence[TrinoColumn]:
        call = self.call(query)
        return await self._columns(f"{self.table_query(catalog, schema, table)} LIMIT 0", call)

    def table_query(self, catalog: str | None, schema: str | None, table: str) -> str:
        parts = [part for part in (catalog, schema, table) if part is not None]
        return f"SELECT * FROM {quoted_name(*parts)}"  # noqa: S608  every name is quoted

    def metadata_query(self, catalog: str, schema: str) -> str:
        """Table, column and type of one schema, in the order of their names: with the schema bound, a Hive catalog answers
        by one schema's tables and not by all of them. A table of which the role sees no column is left out: some catalogs
        list also tables that it may not read."""
        return (
            f"SELECT table_name, column_name, data_type FROM {quoted_name(catalog)}.information_schema.columns"  # noqa: S608  every name is quoted
            f" WHERE table_schema = {text(schema)} ORDER BY table_name, ordinal_position"
        )

    async def check(self, query: Query) -> Sequence[Finding]:
        return await checking.findings(self, query)

    async def close(self) -> None:
        await self.client.close()

    async def begin_unload(
        self, query: Query, table: str, location: str, started: Started, names: Sequence[str] | None = None
    ) -> JsonObject:
        """Asks Trino to write the result itself, as an external Hive table at `location`, and starts nothing: the
        first `poll_unload` does. `names` are the files' columns, where they are not the query's."""
        columns = await self._gate(query)
        check(columns)
        await unloading.prove_hive(self, query)
        sql = unloading.create_table(self.settings, one_query(query.sql), columns, table, location, names)
        session = unloading.session_of(self.settings)
        statement = await self._submit(query, sql, session=session)
        handle: JsonObject = {
            "query_id": statement.id,
            "next_uri": statement.next_uri,
            "table": table,
            "role": query.role,
            "owner": query.owner,
        }
        try:
            await started(handle)
        except BaseException:
            await statement.stop()
            raise
        return handle

    async def poll_unload(
        self, handle: JsonObject, seconds: float = 5.0, moved: unloading.Moved | None = None
    ) -> Unloading | Unloaded | Lost:
        return await unloading.poll(self, handle, seconds, moved)

    async def drop_unload(self, query: Query, table: str) -> None:
        """The files stay. `query` says in whose name."""
        await unloading.drop(self, query, table)

    def call(self, query: Query, session: dict[str, str] | None = None) -> Call:
        if self.requires_role and not query.role:
            raise UserMistake(MISSING_ROLE, code="missing_use_case_id")
        if query.role and not _ROLE.fullmatch(query.role):
            raise UserMistake(
                "The role is not one: letters, digits, _ . and -, at most 128.",
                code="bad_role",
                hint="Send another X-Use-Case-Id.",
            )
        return self.client.call(
            user=query.owner if self.settings.impersonate else None,
            role=query.role,
            job=query.job,
            catalog=query.catalog,
            schema=query.schema,
            session=session,
        )

    async def rows(self, sql: str, query: Query) -> list[list[object]]:
        return await all_rows(self.client, sql, self.call(query))

    async def _gate(self, query: Query) -> Sequence[TrinoColumn]:
        """Trino's own word that the text is one query and nothing else, before it sees the text alone."""
        sql = one_query(query.sql)
        gate = bind(f"SELECT * FROM (\n{sql}\n) LIMIT 0", query.parameters)  # noqa: S608  this is the proof
        return await self._columns(gate, self.call(query), _wrapped(query, sql, lines=1))

    async def _columns(self, sql: str, call: Call, wrapped: Wrapped | None = None) -> Sequence[TrinoColumn]:
        async with await submit(self.client, sql, call, wrapped=wrapped) as statement:
            async for _ in statement.pages():
                pass
            return [column_of(column) for column in statement.columns or ()]

    async def _submit(
        self, query: Query, sql: str, *, encodings: Sequence[str] = (), session: dict[str, str] | None = None
    ) -> Statement:
        bound = bind(sql, query.parameters)
        own = one_query(query.sql)
        # Lines that we put before the author's.
        lines = sql[: sql.index(own)].count("\n")
        call = self.call(query, session)
        return await submit(self.client, bound, call, encodings=encodings, wrapped=_wrapped(query, own, lines))

    async def _names(self, sql: str, query: Query) -> Sequence[str]:
        return [str(row[0]) for row in await self.rows(sql, query)]


def _wrapped(query: Query, sql: str, lines: int) -> Wrapped:
    return Wrapped(sql, lines, BOUND_COLUMNS if query.parameters else 0)


def _schema(columns: Sequence[TrinoColumn]) -> pa.Schema:
    return pa.schema([pa.field(column.name, column.type) for column in columns])


__all__ = ["Lost", "TrinoEngine", "Unloaded", "Unloading"]
