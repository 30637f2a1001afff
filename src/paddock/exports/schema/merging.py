"""Merging what a metadata job read: page by page, each in a short transaction, which takes the place of exactly its range of
names. What has the same digest is not written; what is gone is deleted and counted.

`still_ours` raises in the transaction of a pass that another replica has taken over: one that stood still would otherwise merge
an old reading over a newer one, and delete what its own reading did not see."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any
from uuid import UUID

import orjson

from paddock.db.pool import Database, Transaction, statements
from paddock.storage.store import Store

SQL = statements("paddock.exports.sql", "schema.sql")


@dataclass
class Merged:
    written: int = 0
    deleted: int = 0
    failed_schemas: int = 0


StillOurs = Callable[[Transaction], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ReadAs:
    """What decides which names a reading sees: its role, and the parts that it leaves out."""

    role: str | None = None
    skip: tuple[str, ...] = ()

    @classmethod
    def of(cls, role: str | None, skip: Iterable[str]) -> "ReadAs":
        return cls(role, tuple(sorted(set(skip))))


async def begin(db: Database, engine: str, read_as: ReadAs, still_ours: StillOurs) -> int | None:
    """Before the first page. What was read as somebody else goes first: a schema that fails now would keep names that its new
    readers may not see. How many tables went; None: what is there was read as this, and stays."""
    async with db.transaction() as tx:
        await still_ours(tx)
        row = await tx.fetchrow(SQL["read_as"], engine)
        if row is not None and ReadAs.of(row["role"], row["skip"]) == read_as:
            return None
        dropped = await _drop_all(tx, [engine])
        await tx.execute(SQL["begin_reading_as"], engine, read_as.role, list(read_as.skip))
    return dropped


async def merge_page(db: Database, store: Store, engine: str, job: UUID, key: str, still_ours: StillOurs) -> Merged:
    page: dict[str, Any] = await asyncio.to_thread(orjson.loads, await store.read(key))
    async with db.transaction() as tx:
        await still_ours(tx)
        return await _merge(tx, engine, job, page)


async def _merge(tx: Transaction, engine: str, job: UUID, page: dict[str, Any]) -> Merged:
    catalog, schema = page["catalog"], page["schema"]
    if schema is None:  # the catalog's schemas are not known: all it had stays
        await tx.execute(SQL["see_catalog"], engine, catalog, job, page["error"])
        await tx.execute(SQL["fail_schemas_of_catalog"], engine, catalog, job, page["error"])
        return Merged(failed_schemas=1)
    await tx.execute(SQL["see_catalog"], engine, catalog, job, None)
    await tx.execute(SQL["see_schema"], engine, catalog, schema, job, page["error"])
    if page["error"] is not None:
        return Merged(failed_schemas=1)
    rows = await tx.fetch(SQL["digests"], engine, catalog, schema, page["after"], page["until"])
    before = {row["name"]: row["digest"] for row in rows}
    now = {name: (columns, types, bytes.fromhex(digest)) for name, columns, types, digest in page["tables"]}
    changed = {name: found for name, found in now.items() if before.get(name) != found[2]}
    gone = sorted(before.keys() - now.keys())
    for statement, some in (
        ("add_tables", {name: found for name, found in changed.items() if name not in before}),
        ("change_tables", {name: found for name, found in changed.items() if name in before}),
    ):
        if some:
            await tx.execute(SQL[statement], engine, catalog, schema, *_columnwise(some))
    if gone:
        await tx.execute(SQL["drop_tables"], engine, catalog, schema, gone)
    if page["until"] is None:
        await tx.execute(SQL["count_schema"], engine, catalog, schema)
    return Merged(len(changed), len(gone))


Changed = Mapping[str, tuple[Sequence[str], Sequence[str], bytes]]


def _columnwise(changed: Changed) -> tuple[object, ...]:
    columns = [columns for columns, _, _ in changed.values()]
    types = [types for _, types, _ in changed.values()]
    separator = _separator(chain.from_iterable((*columns, *types)))
    return (
        list(changed),
        [separator.join(("", *names)) for names in columns],
        [separator.join(("", *words)) for words in types],
        [digest for _, _, digest in changed.values()],
        [name.lower() for name in changed],
        ["\n".join(names).lower() for names in columns],
        separator,
    )


def _separator(texts: Iterable[str]) -> str:
    """A character that none of them has: names are hostile, and may have any."""
    used = set("".join(texts))
    return next(letter for letter in map(chr, range(1, sys.maxunicode)) if letter not in used)


async def drop_gone_schemas(db: Database, engine: str, job: UUID, still_ours: StillOurs) -> int:
    """Schemas and catalogs that a whole refresh did not see."""
    dropped = 0
    while rows := await db.fetch(SQL["gone_schemas"], engine, job):
        for row in rows:
            async with db.transaction() as tx:
                await still_ours(tx)
                tag = await tx.execute(SQL["drop_tables_of_schema"], engine, row["catalog"], row["schema"])
                await tx.execute(SQL["drop_schema"], engine, row["catalog"], row["schema"], job)
            dropped += int(tag.rpartition(" ")[2])
    async with db.transaction() as tx:
        await still_ours(tx)
        await tx.execute(SQL["drop_gone_catalogs"], engine, job)
    return dropped


async def drop_gone_engines(db: Database, configured: list[str]) -> int:
    async with db.transaction() as tx:
        gone = [row["engine"] for row in await tx.fetch(SQL["drop_engines"], configured)]
        return await _drop_all(tx, gone) if gone else 0


async def _drop_all(tx: Transaction, engines: list[str]) -> int:
    await tx.execute(SQL["drop_catalogs_of_engines"], engines)
    await tx.execute(SQL["drop_schemas_of_engines"], engines)
    tag = await tx.execute(SQL["drop_tables_of_engines"], engines)
    return int(tag.rpartition(" ")[2])
