"""An instance as a value, and how it is read."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database, statements
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.model import JobId, JsonObject

SQL = statements("paddock.instances.sql", "instances.sql")
LIVE = ("waiting_for_snapshot", "starting", "running", "stopping")
STATUSES = (*LIVE, "failed")


@dataclass(frozen=True, slots=True)
class Instance:
    id: UUID
    owner: str
    name: str
    description: str
    status: str
    wrapper_type: str
    mapping_id: UUID
    mapping_version: int
    snapshot_id: UUID | None
    pending_snapshot_id: UUID | None
    cpu_cores: int
    memory_gb: int
    ttl: timedelta
    inactivity_timeout: timedelta
    generation: UUID | None
    generation_number: int
    pod_name: str | None
    counts: JsonObject | None
    dangling_edges: JsonObject | None
    error: JsonObject | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    last_activity_at: datetime | None
    expires_at: datetime | None
    # The start, stop or cleanup at work for it.
    job_id: JobId | None
    # How far the start at work for it is.
    progress: JsonObject | None
    shared_with: Sequence[str]

    @property
    def slug(self) -> str:
        return self.id.hex

    @property
    def settled(self) -> bool:
        """Whether whoever waits for it to run need wait no longer."""
        return self.status not in ("waiting_for_snapshot", "starting")


def subject_of(id: UUID) -> str:
    """How events, the audit log, locks and uses name it."""
    return f"instance:{id}"


async def get(db: Database, id: UUID) -> Instance | None:
    row = await db.fetchrow(SQL["instance"], id)
    return None if row is None else instance_of(row)


async def page(
    db: Database,
    *,
    scope: str | None = None,
    owner: str | None = None,
    mapping_id: UUID | None = None,
    snapshot_id: UUID | None = None,
    statuses: Sequence[str] | None = None,
    text: str | None = None,
    name: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[Instance]:
    """Newest first. `scope` is who looks: their own and those shared with them; None: everybody's."""
    wanted = None if statuses is None else list(statuses)
    rows = await db.fetch(
        SQL["instances_page"], before or GREATEST_ID, limit, scope, owner, mapping_id, snapshot_id, wanted, text, name
    )
    return [instance_of(row) for row in rows]


_NAMES = tuple(field.name for field in fields(Instance))


def instance_of(row: asyncpg.Record) -> Instance:
    found = {name: row[name] for name in _NAMES}
    for name in ("counts", "dangling_edges", "error", "progress"):
        found[name] = None if row[name] is None else orjson.loads(row[name])
    return Instance(**found)
