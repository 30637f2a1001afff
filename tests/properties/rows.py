"""What the database says, as values: everything the model is compared with, read after every step."""

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

# 'infinity', which asyncpg reads as a datetime without a zone.
NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass
class Live:
    """A row of `jobs`."""

    id: UUID
    kind: str
    status: str
    priority: int
    lane: int
    due_at: datetime
    owner: str
    created_at: datetime
    saved: str | None = None
    attempt_id: UUID | None = None
    ended_by: UUID | None = None
    ended_as: str | None = None
    session_id: UUID | None = None
    claim_id: UUID | None = None
    claimed_at: datetime | None = None
    started_at: datetime | None = None
    saved_at: datetime | None = None
    unlisted: int = 0
    turn_count: int = 0
    failure_count: int = 0
    unclassified_count: int = 0
    cluster_count: int = 0
    lost_count: int = 0
    unsaved_seconds: float = 0
    error_code: str | None = None
    waiting_on: str | None = None
    lock_key: str | None = None
    group_id: UUID | None = None
    retry_of: UUID | None = None
    cleanup_of: UUID | None = None
    parent_id: UUID | None = None
    after_attempt: UUID | None = None
    serial: bool = False

    def __post_init__(self) -> None:
        self.due_at = self.due_at.replace(tzinfo=UTC)


@dataclass
class Ended:
    """A row of `job_history`; `print` is all of it, for what must never change."""

    id: UUID
    kind: str
    status: str
    priority: int
    owner: str
    ended_by: UUID | None
    error_code: str | None
    turn_count: int
    failure_count: int
    cluster_count: int
    lost_count: int
    saved: str | None
    lock_key: str | None
    group_id: UUID | None
    retry_of: UUID | None
    cleanup_of: UUID | None
    parent_id: UUID | None
    completed_at: datetime
    print: str | None = None


@dataclass
class GroupRow:
    id: UUID
    total: int = 0
    open: int = 0
    failed: int = 0
    cancelled: int = 0
    sealed: bool = False
    ended: bool = False
    final: bool = False
    hook_due: bool = False
    hook_runs: int = 0


# (type, subject) and the webhooks told of it.
Told = tuple[str, str, tuple[UUID, ...]]


@dataclass
class Snapshot:
    live: dict[UUID, Live]
    ended: dict[UUID, Ended]
    # Rows of history, to see that none is there twice.
    ends: int
    groups: dict[UUID, GroupRow]
    sessions: dict[UUID, datetime]
    events: list[Told]
    # Delivery jobs by what they deliver.
    deliveries: set[UUID]
    end_hooks: list[tuple[UUID, str]]


def _columns(row: type[Any], *leave_out: str) -> str:
    return ", ".join(field.name for field in fields(row) if field.name not in leave_out)


LIVE = f"SELECT {_columns(Live, 'saved')}, saved::text FROM jobs"
ENDED = f"SELECT {_columns(Ended, 'saved', 'print')}, saved::text, md5(h::text) AS print FROM job_history h"
GROUPS = """
    SELECT id, total, open, failed, cancelled, sealed, ended_at IS NOT NULL AS ended, final, hook_due,
           (SELECT count(*) FROM test_group_hooks t WHERE t.group_id = g.id) AS hook_runs FROM groups g"""
EVENTS = """
    SELECT e.type, e.subject, ARRAY(SELECT webhook_id FROM deliveries d WHERE d.event_id = e.id ORDER BY 1) AS told
    FROM events e"""


async def read_snapshot(connection: "asyncpg.Connection[asyncpg.Record]") -> Snapshot:
    ended = [Ended(**dict(row)) for row in await connection.fetch(ENDED)]
    return Snapshot(
        live={row["id"]: Live(**dict(row)) for row in await connection.fetch(LIVE)},
        ended={row.id: row for row in ended},
        ends=len(ended),
        groups={row["id"]: GroupRow(**dict(row)) for row in await connection.fetch(GROUPS)},
        sessions={
            row["id"]: row["expires_at"] for row in await connection.fetch("SELECT id, expires_at FROM sessions")
        },
        events=sorted((row["type"], row["subject"], tuple(row["told"])) for row in await connection.fetch(EVENTS)),
        deliveries={row["job_id"] for row in await connection.fetch("SELECT job_id FROM deliveries")},
        end_hooks=[tuple(row) for row in await connection.fetch("SELECT * FROM test_end_hooks ORDER BY 1, 2")],
    )
