"""What workers run now, what died with those that are gone, and which of them are late. Cheap at any number of jobs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from paddock.db.pool import Database, statements
from paddock.jobs.figures.overviews import WorkerSeen
from paddock.jobs.model import JobId, SessionId

SQL = statements("paddock.jobs.sql", "running.sql")


@dataclass(frozen=True, slots=True)
class Held:
    """A job that runs, as far as a list of what runs needs it."""

    id: JobId
    session: SessionId
    kind: str
    owner: str
    worker: str
    claimed_at: datetime
    report: Mapping[str, Any] | None
    cleanup: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """A job that a session held when it died: `rescued` and given back, or ended as `worker_lost`."""

    id: JobId
    session: SessionId
    event: str
    at: datetime


async def held_by(db: Database, sessions: Sequence[SessionId], *, most: int) -> list[Held]:
    """What runs in these sessions, the longest first, at most `most` of each."""
    found = [
        Held(
            id=row["id"],
            session=row["session_id"],
            kind=row["kind"],
            owner=row["owner"],
            worker=row["claimed_by"],
            claimed_at=row["claimed_at"],
            report=None if row["report"] is None else orjson.loads(row["report"]),
            cleanup=row["cleanup"],
        )
        for row in await db.fetch(SQL["held_by_sessions"], sessions, most)
    ]
    return sorted(found, key=lambda held: (held.claimed_at, held.id))


async def lost_by(db: Database, workers: Sequence[WorkerSeen], *, most: int) -> list[Lost]:
    """What these sessions held when they died, at most `most` of each."""
    columns: Sequence[Sequence[object]] = (
        [worker.session for worker in workers],
        [worker.worker_id for worker in workers],
        [worker.started_at for worker in workers],
        [worker.expires_at for worker in workers],
    )
    rows = await db.fetch(SQL["lost_by_sessions"], *columns, most)
    return [Lost(row["job_id"], row["session_id"], row["event"], row["at"]) for row in rows]


async def late(db: Database) -> frozenset[SessionId]:
    """Live sessions whose next beat is overdue: half of their lease has passed without one."""
    return frozenset(SessionId(row["id"]) for row in await db.fetch(SQL["late_sessions"]))
