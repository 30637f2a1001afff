"""What happened to one job: its timeline, and the jobs that belong to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database
from paddock.jobs.figures.overviews import SQL
from paddock.jobs.model import TERMINAL, Job, JobId

MOST_ENTRIES = 500
MOST_FOLLOW_UPS = 20


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One line of a timeline. `count` > 1: so many turns that ended with *again* between `at` and `until`."""

    at: datetime
    event: str
    from_status: str | None = None
    to_status: str | None = None
    attempt_id: UUID | None = None
    worker: str | None = None
    actor: str | None = None
    reason: str | None = None
    claimed_at: datetime | None = None
    error: Mapping[str, Any] | None = None
    count: int = 1
    until: datetime | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "at": self.at,
            "event": self.event,
            "from": self.from_status,
            "to": self.to_status,
            "attempt_id": self.attempt_id,
            "worker": self.worker,
            "actor": self.actor,
            "reason": self.reason,
            "claimed_at": self.claimed_at,
            "error": self.error,
            "count": self.count,
            "until": self.until,
        }


@dataclass(frozen=True, slots=True)
class Relative:
    """A job that has to do with another: as much of it as a link to it says."""

    id: JobId
    kind: str
    status: str
    owner: str
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None

    @property
    def ended(self) -> bool:
        return self.status in TERMINAL


@dataclass(frozen=True, slots=True)
class Related:
    """None where there is no such job, or it has left the history. `more`: there are further follow-ups."""

    parent: Relative | None = None
    follow_ups: Sequence[Relative] = ()
    more: bool = False
    retry_of: Relative | None = None
    retried_by: Relative | None = None
    cleanup: Relative | None = None
    cleanup_of: Relative | None = None

    @property
    def all(self) -> list[Relative]:
        ones = (self.parent, self.retry_of, self.retried_by, self.cleanup, self.cleanup_of)
        return [one for one in ones if one is not None] + list(self.follow_ups)


async def timeline_of(db: Database, job: Job) -> list[TimelineEntry]:
    """Oldest first: what the job's own columns tell, and the rows written for what they cannot."""
    rows = [_entry(row) for row in await db.fetch(SQL["timeline_rows"], job.id, MOST_ENTRIES)]
    told = [*_from_columns(job, rows), *rows]
    # A stable sort: at one and the same time a claim comes before what happened to it.
    return sorted(told, key=lambda entry: entry.at)[-MOST_ENTRIES:]


async def related(db: Database, job: Job, *, follow_ups: int = MOST_FOLLOW_UPS) -> Related:
    """The jobs this one came from and those that came of it, each as it stands now."""
    named = [id for id in (job.retry_of, job.retried_by, job.cleanup_of) if id is not None]
    found: dict[str, list[Relative]] = {}
    for row in await db.fetch(SQL["related_jobs"], job.id, named, follow_ups + 1):
        found.setdefault(row["relation"], []).append(_relative(row))
    by_id = {relative.id: relative for relative in found.get("named", ())}
    children = found.get("follow_up", [])
    return Related(
        parent=_first(found.get("parent")),
        follow_ups=children[:follow_ups],
        more=len(children) > follow_ups,
        retry_of=None if job.retry_of is None else by_id.get(job.retry_of),
        retried_by=None if job.retried_by is None else by_id.get(job.retried_by),
        cleanup=_first(found.get("cleanup")),
        cleanup_of=None if job.cleanup_of is None else by_id.get(job.cleanup_of),
    )


def _first(found: Sequence[Relative] | None) -> Relative | None:
    return found[0] if found else None


def _relative(row: asyncpg.Record) -> Relative:
    return Relative(
        id=JobId(row["id"]),
        kind=row["kind"],
        status=row["status"],
        owner=row["owner"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        completed_at=row["completed_at"],
    )


def _from_columns(job: Job, rows: Sequence[TimelineEntry]) -> list[TimelineEntry]:
    told = [TimelineEntry(job.created_at, "enqueued", None, "pending", actor=job.owner)]
    if job.started_at is not None:
        told.append(TimelineEntry(job.started_at, "claimed", "pending", "claimed"))
    yields = _yields(job, rows)
    if yields and job.started_at is not None:
        told.append(TimelineEntry(job.started_at, "yielded", "claimed", "pending", count=yields, until=job.claimed_at))
    if job.claimed_at is not None and job.claimed_at != job.started_at:
        told.append(TimelineEntry(job.claimed_at, "claimed", "pending", "claimed", job.attempt_id, job.claimed_by))
    elif job.turn_count == 1 and len(told) > 1:
        told[1] = replace(told[1], attempt_id=job.attempt_id or job.ended_by, worker=job.claimed_by)
    if job.completed_at is not None and not any(entry.to_status in TERMINAL for entry in rows):
        error = {"code": job.error_code, "message": job.error_message} if job.error_code else None
        told.append(
            TimelineEntry(
                job.completed_at,
                job.status,
                "claimed",
                job.status,
                job.ended_by,
                job.claimed_by,
                claimed_at=job.claimed_at,
                error=error,
            )
        )
    return told


def _yields(job: Job, rows: Sequence[TimelineEntry]) -> int:
    """Turns leave no row when they end with *again*: what is left of the count once the others are subtracted."""
    known = sum(entry.from_status == "claimed" for entry in rows)
    ended_its_own = job.ended_by is not None and not any(entry.to_status in TERMINAL for entry in rows)
    if job.attempt_id is not None or (job.ended and ended_its_own):
        known += 1
    return max(0, job.turn_count - known)


def _entry(row: asyncpg.Record) -> TimelineEntry:
    return TimelineEntry(
        at=row["at"],
        event=row["event"],
        from_status=row["from_status"],
        to_status=row["to_status"],
        attempt_id=row["attempt_id"],
        worker=row["worker"],
        actor=row["actor"],
        reason=row["reason"],
        claimed_at=row["claimed_at"],
        error=None if row["error"] is None else orjson.loads(row["error"]),
    )
