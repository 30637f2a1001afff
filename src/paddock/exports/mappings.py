"""Mappings and their versions. A version never changes; whoever changes a mapping makes a new one and says why."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database, Transaction, statements
from paddock.exports import mapping
from paddock.exports.mapping import Definition
from paddock.jobs import enqueueing
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.model import JobId, JsonObject

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.exports.sql", "mappings.sql")
MOST_NAMED = 20
GREATEST_VERSION = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Mapping:
    """A mapping as one of its versions has it; `latest` is the newest."""

    id: UUID
    owner: str
    name: str
    description: str
    latest: int
    ttl: timedelta | None
    created_at: datetime
    updated_at: datetime
    version: int
    definition: Definition
    change_description: str
    created_by: str
    version_created_at: datetime


@dataclass(frozen=True, slots=True)
class BriefMapping:
    id: UUID
    owner: str
    name: str
    description: str
    version: int
    ttl: timedelta | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class Version:
    version: int
    change_description: str
    created_by: str
    created_at: datetime
    nodes: int
    edges: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewMapping:
    owner: str
    name: str
    definition: Definition
    description: str = ""
    ttl: timedelta | None = None
    change_description: str = "First version."


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A new version. What is None stays as it is; `keep_ttl` tells "no ttl" from "the same ttl"."""

    change_description: str
    definition: Definition | None = None
    name: str | None = None
    description: str | None = None
    ttl: timedelta | None = None
    keep_ttl: bool = True
    # The version its author looked at: somebody else's change since is not overwritten.
    based_on: int | None = None


async def create(core: "Core", new: NewMapping, *, actor: str, idempotency: IdempotencyKey | None = None) -> Mapping:
    definition = mapping.checked(new.definition)

    async def insert(tx: Transaction) -> UUID:
        id: UUID = await tx.fetchval(SQL["new_id"])
        if await tx.fetchval(SQL["insert_mapping"], id, new.owner, new.name, new.description, new.ttl) is None:
            raise await _name_taken(tx, new.owner, new.name)
        await tx.execute(SQL["insert_version"], id, 1, _json(definition), new.change_description, actor)
        await audit(tx, actor, "mapping_created", f"mapping:{id}", details={"name": new.name})
        return id

    return await _existing(core, await enqueueing.once(core, idempotency, insert))


async def change(
    core: "Core", id: UUID, wanted: Change, *, actor: str, idempotency: IdempotencyKey | None = None
) -> Mapping:
    definition = None if wanted.definition is None else mapping.checked(wanted.definition)

    async def write(tx: Transaction) -> None:
        if await enqueueing.earlier(tx, idempotency) is not None:
            return
        row = await tx.fetchrow(SQL["mapping_for_update"], id)
        if row is None:
            raise _gone()
        if wanted.based_on is not None and wanted.based_on != row["version"]:
            raise Refused(
                "version_conflict",
                f"The mapping has version {row['version']} now; this change was made to version {wanted.based_on}.",
                hint="Look at what changed since, then send your change based on the newest version.",
                details={"version": row["version"]},
            )
        before = Definition.model_validate_json(await tx.fetchval(SQL["definition"], id, row["version"]))
        after = definition or before
        name = wanted.name or row["name"]
        description = row["description"] if wanted.description is None else wanted.description
        ttl = row["ttl"] if wanted.keep_ttl else wanted.ttl
        if (after, name, description, ttl) == (before, row["name"], row["description"], row["ttl"]):
            raise Refused("unchanged", f"Version {row['version']} says the same already; nothing was changed.")
        version = row["version"] + 1
        try:
            async with tx.savepoint():
                await tx.execute(SQL["change_mapping"], id, name, description, ttl, version)
        except asyncpg.UniqueViolationError:
            raise await _name_taken(tx, row["owner"], name) from None
        await tx.execute(SQL["insert_version"], id, version, _json(after), wanted.change_description, actor)
        await audit(tx, actor, "mapping_changed", f"mapping:{id}", wanted.change_description, {"version": version})
        await enqueueing.remember(tx, idempotency, [JobId(id)])

    await core.db.repeated(write)
    return await _existing(core, id)


async def copy(
    core: "Core",
    source: Mapping,
    *,
    owner: str,
    name: str,
    actor: str,
    idempotency: IdempotencyKey | None = None,
) -> Mapping:
    """The version given becomes version 1 of a new mapping."""
    new = NewMapping(
        owner=owner,
        name=name,
        definition=source.definition,
        description=source.description,
        ttl=source.ttl,
        change_description=f"Copied from {source.name}, version {source.version}.",
    )
    return await create(core, new, actor=actor, idempotency=idempotency)


async def delete(core: "Core", id: UUID, *, actor: str, scope: str | None) -> None:
    """Refused while a snapshot of it exists; `scope` is the owner whose snapshots may be named, None: everybody's."""
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["mapping_for_update"], id)
        if row is None:
            raise _gone()
        kept_by = await tx.fetch(SQL["snapshots_of_mapping"], id, MOST_NAMED)
        if kept_by:
            raise _in_use(kept_by, scope)
        await tx.execute(SQL["delete_mapping"], id)
        await audit(tx, actor, "mapping_deleted", f"mapping:{id}", details={"name": row["name"]})


def _in_use(snapshots: Sequence[asyncpg.Record], scope: str | None) -> Refused:
    seen = [row for row in snapshots if scope is None or row["owner"] == scope]
    named = ", ".join(f"'{row['name']}' ({row['id']})" for row in seen[:5])
    return Refused(
        "mapping_in_use",
        f"Snapshots were made from this mapping: {named}." if seen else "Others made snapshots from this mapping.",
        hint="Delete them first.",
        details={"snapshots": [{"id": str(row["id"]), "name": row["name"]} for row in seen]},
    )


async def expire(core: "Core", id: UUID) -> bool:
    """Whether it went: its time is over and no snapshot of it is left, looked at again under the lock."""
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["expired_mapping_for_update"], id)
        # A snapshot may have been made while the lock was waited for.
        if row is None or await tx.fetch(SQL["snapshots_of_mapping"], id, 1):
            return False
        await tx.execute(SQL["delete_mapping"], id)
        await audit(tx, "paddock", "mapping_deleted", f"mapping:{id}", "its ttl is over", {"name": row["name"]})
        return True


async def get(db: Database, id: UUID, version: int | None = None) -> Mapping | None:
    """The version asked for, or the newest."""
    row = await db.fetchrow(SQL["mapping"], id, version)
    if row is None:
        return None
    return Mapping(**{**row, "definition": Definition.model_validate_json(row["definition"])})


async def page(
    db: Database,
    owner: str | None,
    *,
    name: str | None = None,
    text: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[BriefMapping]:
    """Newest first; of one owner, or everybody's. `text` is looked for in names and descriptions."""
    common = (before or GREATEST_ID, limit, name, text)
    if owner is None:
        rows = await db.fetch(SQL["mappings_page"], *common)
    else:
        rows = await db.fetch(SQL["mappings_page_of_owner"], *common, owner)
    return [BriefMapping(**row) for row in rows]


async def versions(db: Database, id: UUID, *, before: int | None = None, limit: int = 100) -> list[Version]:
    """Newest first."""
    rows = await db.fetch(SQL["versions_page"], id, GREATEST_VERSION if before is None else before, limit)
    return [Version(**row) for row in rows]


def diff(before: Mapping, after: Mapping) -> JsonObject:
    return {"from": before.version, "to": after.version, **mapping.diff(before.definition, after.definition)}


async def _existing(core: "Core", id: UUID) -> Mapping:
    found = await get(core.db, id)
    if found is None:
        raise _gone()
    return found


async def _name_taken(tx: Transaction, owner: str, name: str) -> Refused:
    holder = await tx.fetchval(SQL["mapping_named"], owner, name)
    return Refused(
        "name_taken",
        f"There is a mapping '{name}' already.",
        hint="Choose another name, or make a new version of that one.",
        details={} if holder is None else {"holder": str(holder)},
    )


def _gone() -> Refused:
    return Refused("not_found", "There is no such mapping.", status=404)


def _json(definition: Definition) -> str:
    return orjson.dumps(definition.dumped()).decode()
