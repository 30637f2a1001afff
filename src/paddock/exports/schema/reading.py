"""The `metadata` job: a worker reads what an engine has, schema by schema, into pages of a draft.

The unit is one schema: a question about a whole Hive catalog takes hours and may fail by one table. Its place is saved after
each, so a worker that dies repeats one schema; pages of the repetition take the names of those before. One that fails, or
takes longer than five minutes, is a page that says so, and the rest goes on.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from itertools import groupby
from typing import Any

import orjson

from paddock.engines.engine import Engine, Query
from paddock.exports.model import MetadataPayload
from paddock.exports.resources import ExportResources
from paddock.exports.running import check_role
from paddock.jobs.errors import InfrastructureError
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.log import scrub
from paddock.storage.drafts import new_draft_id

TABLES_IN_A_PAGE = 1_000
LONGEST_SCHEMA = 300.0
LONGEST_NAME = 500
SYSTEM_SCHEMAS = frozenset({"information_schema", "pg_catalog"})

Table = tuple[str, list[tuple[str, str]]]
# A table's name, and one of its columns with its type; a table without columns has one row without.
Row = tuple[str, str | None, str | None]


async def run(turn: Turn[MetadataPayload], workshop: ExportResources) -> Outcome:
    engine = workshop.engines[turn.payload.engine]
    check_role(engine, turn.role)
    reading = Reading(turn, workshop, engine)
    return done(await reading.whole())


class Reading:
    def __init__(self, turn: Turn[MetadataPayload], workshop: ExportResources, engine: Engine) -> None:
        self.turn, self.store, self.engine = turn, workshop.store, engine
        self.query = Query(sql="", role=turn.role, owner=turn.owner, job=str(turn.id))
        self.draft: str = turn.saved.get("draft") or new_draft_id()
        self.pages: int = turn.saved.get("pages", 0)
        self.after: Sequence[str] = turn.saved.get("after", ["", ""])

    @property
    def prefix(self) -> str:
        return f"metadata/{self.engine.name}/{self.draft}"

    async def whole(self) -> dict[str, Any]:
        await self._save()
        for catalog in sorted(await self.engine.catalogs(self.query)):
            if catalog in self.turn.payload.skip or catalog < self.after[0]:
                continue
            for schema in await self._schemas(catalog):
                if [catalog, schema] > list(self.after):
                    await self._schema(catalog, schema)
                    self.after = [catalog, schema]
                    await self._save()
                    self.turn.report(phase="reading", catalog=catalog, schema=schema, pages=self.pages)
        return {"prefix": self.prefix, "pages": self.pages}

    async def _save(self) -> None:
        await self.turn.save({"draft": self.draft, "pages": self.pages, "after": list(self.after)})

    async def _schemas(self, catalog: str) -> list[str]:
        try:
            async with asyncio.timeout(LONGEST_SCHEMA):
                found = await self.engine.schemas(self.query, catalog)
        except (InfrastructureError, TimeoutError) as problem:
            # Its schemas are not known, so what is cached of the catalog is kept.
            await self._page(catalog, None, "", None, [], _error_text(problem))
            return []
        skipped = {one.partition(".")[2] for one in self.turn.payload.skip if one.startswith(f"{catalog}.")}
        return sorted(set(found) - skipped - SYSTEM_SCHEMAS)

    async def _schema(self, catalog: str, schema: str) -> None:
        first = self.pages
        try:
            async with asyncio.timeout(LONGEST_SCHEMA):
                await self._tables(catalog, schema)
        except (InfrastructureError, TimeoutError) as problem:
            self.pages = first
            await self._page(catalog, schema, "", None, [], _error_text(problem))

    async def _tables(self, catalog: str, schema: str) -> None:
        after, held = "", list[Table]()
        async for table in tables_of(self.engine, self.query, catalog, schema):
            held.append(table)
            if len(held) == TABLES_IN_A_PAGE:
                await self._page(catalog, schema, after, held[-1][0], held)
                after, held = held[-1][0], []
        await self._page(catalog, schema, after, None, held)

    async def _page(
        self,
        catalog: str,
        schema: str | None,
        after: str,
        until: str | None,
        tables: Sequence[Table],
        error: str | None = None,
    ) -> None:
        shown = [[name, [c for c, _ in columns], [t for _, t in columns], _digest(columns)] for name, columns in tables]
        body = {"catalog": catalog, "schema": schema, "after": after, "until": until, "tables": shown, "error": error}
        await self.store.put(f"{self.prefix}/{self.pages:06}.json", await asyncio.to_thread(orjson.dumps, body))
        self.pages += 1


def _digest(columns: Sequence[tuple[str, str]]) -> str:
    return hashlib.sha256(orjson.dumps(columns)).hexdigest()[:32]


def _error_text(problem: Exception) -> str:
    told = problem.message if isinstance(problem, InfrastructureError) else f"No answer within {LONGEST_SCHEMA:.0f} s."
    return scrub(told, limit=500)


async def tables_of(engine: Engine, query: Query, catalog: str, schema: str) -> AsyncIterator[Table]:
    """In the order of their names, byte by byte. An engine that can tell them by one query has `metadata_query`."""
    asked = getattr(engine, "metadata_query", None)
    if asked is None:
        for name in sorted(await engine.tables(query, catalog, schema)):
            columns = await engine.table_columns(query, catalog, schema, name)
            yield _cut(name), [(_cut(column.name), _cut(column.native)) for column in columns]
        return
    whole = Query(sql=asked(catalog, schema), role=query.role, owner=query.owner, job=query.job, catalog=catalog)
    held: list[Row] = []
    async with engine.open(whole) as stream:
        await stream.begin()
        async for batch in stream.batches():
            columns = [column.to_pylist() for column in batch.columns]
            held += zip(*columns, strict=True)
            # The last table may go on in the next batch.
            last = held[-1][0] if held else None
            whole_tables = [row for row in held if row[0] != last]
            held = [row for row in held if row[0] == last]
            for found in _grouped(whole_tables):
                yield found
    for found in _grouped(held):
        yield found


def _grouped(rows: Sequence[Row]) -> list[Table]:
    return [
        (_cut(table), [(_cut(name), _cut(str(native))) for _, name, native in columns if name is not None])
        for table, columns in groupby(rows, key=lambda row: row[0])
    ]


def _cut(text: str) -> str:
    """PostgreSQL takes no NUL, and nobody needs more of a type than this."""
    return text.replace("\0", "")[:LONGEST_NAME]
