"""What a snapshot is now: its state, its parts with the jobs at work for them, and its manifest."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database, statements
from paddock.exports.model import Section, owner_id
from paddock.jobs.errors import InfrastructureError, Refused
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.model import GroupId, JobId, JsonObject

if TYPE_CHECKING:
    from paddock.storage.store import Store

SQL = statements("paddock.exports.sql", "snapshots.sql")
LIVE = ("pending", "creating")
STATUSES = (*LIVE, "ready", "failed", "cancelled", "deleting")


@dataclass(frozen=True, slots=True)
class Snapshot:
    id: UUID
    owner: str
    name: str
    description: str
    mapping_id: UUID
    mapping_version: int
    engine: str
    role: str | None
    request: JsonObject
    group_id: GroupId
    status: str
    removal_job: JobId | None
    error: JsonObject | None
    node_counts: dict[str, int] | None
    edge_counts: dict[str, int] | None
    size_bytes: int | None
    ttl: timedelta | None
    expires_at: datetime | None
    created_at: datetime
    ended_at: datetime | None

    @property
    def live(self) -> bool:
        return self.status in LIVE


@dataclass(frozen=True, slots=True)
class SnapshotPart:
    """One node or edge definition. `status` is that of its current job, whose `report` says how far it is."""

    section: Section
    position: int
    name: str
    job_id: JobId
    status: str
    rows: int | None
    bytes: int | None
    files: int | None
    manifest: str | None
    manifest_sha256: str | None
    query_id: str | None
    query_started_at: datetime | None
    error: JsonObject | None
    started_at: datetime | None
    report: JsonObject | None = None


def prefix_of(owner: str, mapping_id: UUID, version: int, id: UUID) -> str:
    """Everything that a snapshot's jobs ever wrote is below."""
    return f"{owner_id(owner)}/{mapping_id}/v{version}/{id}"


async def get(db: Database, id: UUID) -> Snapshot | None:
    row = await db.fetchrow(SQL["snapshot"], id)
    return None if row is None else snapshot_of(row)


async def some(db: Database, ids: Sequence[UUID]) -> list[Snapshot]:
    return [snapshot_of(row) for row in await db.fetch(SQL["some_snapshots"], list(ids))]


async def page(
    db: Database,
    owner: str | None,
    *,
    mapping_id: UUID | None = None,
    statuses: Sequence[str] | None = None,
    name: str | None = None,
    text: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[Snapshot]:
    """Newest first; of one owner, or everybody's. Those that go are only shown to who asks for them."""
    common = (before or GREATEST_ID, limit, mapping_id, None if statuses is None else list(statuses), text, name)
    if owner is None:
        rows = await db.fetch(SQL["snapshots_page"], *common)
    else:
        rows = await db.fetch(SQL["snapshots_page_of_owner"], *common, owner)
    return [snapshot_of(row) for row in rows]


async def parts(db: Database, snapshot: Snapshot) -> list[SnapshotPart]:
    """Nodes first, in the mapping's order."""
    found = [part_of(row) for row in await db.fetch(SQL["parts_shown"], snapshot.id)]
    live = {(row["section"], row["name"]): row for row in await db.fetch(SQL["live_parts_shown"], snapshot.group_id)}
    return [_at_work(part, live.get((part.section, part.name))) for part in found]


def _at_work(part: SnapshotPart, job: asyncpg.Record | None) -> SnapshotPart:
    if job is None:
        return part
    return replace(
        part,
        job_id=job["id"],
        status=job["status"],
        started_at=part.started_at or job["started_at"],
        error=None,
        report=_json(job["report"]),
    )


async def manifest(
    db: Database, snapshot: Snapshot, store: "Store | None" = None, only: str | None = None
) -> JsonObject:
    """Composed when it is read; with a store, each part has its files too, checked against the part's sha256: all of
    them, or the one that has a file of this name."""
    if snapshot.status != "ready":
        raise Refused(
            "snapshot_not_ready",
            f"The snapshot is {snapshot.status}; only a ready one has a manifest.",
            hint="Wait until it is ready, or retry what failed.",
        )
    listed = [_listed(part) for part in await parts(db, snapshot)]
    if store is not None:
        for part in listed:
            folder = f"{part['section']}/{part['name']}"
            if only is None or only.startswith(f"{folder}/"):
                part.update(await _contents(store, part["manifest"], part["sha256"], folder))
    return {
        "snapshot_id": str(snapshot.id),
        "mapping_id": str(snapshot.mapping_id),
        "mapping_version": snapshot.mapping_version,
        "engine": snapshot.engine,
        "created_at": snapshot.created_at,
        "ready_at": snapshot.ended_at,
        "rows": sum(part["rows"] for part in listed),
        "bytes": sum(part["bytes"] for part in listed),
        "parts": listed,
    }


def _listed(part: SnapshotPart) -> JsonObject:
    return {
        "section": part.section,
        "name": part.name,
        "manifest": part.manifest,
        "sha256": part.manifest_sha256,
        "rows": part.rows,
        "bytes": part.bytes,
        "file_count": part.files,
        "query_id": part.query_id,
        # A snapshot is consistent per query: this is when each looked at the data.
        "started_at": part.query_started_at,
        "job_id": str(part.job_id),
    }


async def _contents(store: "Store", key: str, sha256: str, folder: str) -> JsonObject:
    """`name` is what a file is downloaded by, `key` where it lies in the store."""
    from paddock.storage.drafts import read_manifest

    try:
        found = await read_manifest(store, key, sha256)
    except InfrastructureError as problem:
        raise Refused(problem.code, problem.message, hint=problem.hint, status=503) from problem
    return {
        "columns": found.facts.get("columns"),
        "files": [
            {
                "name": f"{folder}/{file.name}",
                "key": found.key(file),
                "rows": file.rows,
                "bytes": file.bytes,
                "sha256": file.sha256,
            }
            for file in found.files
        ],
    }


def part_of(row: asyncpg.Record) -> SnapshotPart:
    return SnapshotPart(**{**row, "error": _json(row["error"])})


def snapshot_of(row: asyncpg.Record) -> Snapshot:
    loaded = {name: _json(row[name]) for name in ("request", "error", "node_counts", "edge_counts")}
    return Snapshot(**{**row, **loaded})


def _json(text: str | None) -> JsonObject | None:
    found: JsonObject | None = None if text is None else orjson.loads(text)
    return found
