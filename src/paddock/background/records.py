"""The rows of background jobs: how the last pass went, what it found, where the next one begins.

Metrics that the database tells are set from these rows: by every replica every 10 s, and at once by the replica that ended
a pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

import asyncpg
import orjson

from paddock.db.pool import Database, Transaction, statements
from paddock.jobs import schedules
from paddock.jobs.model import Job, JobId, JsonObject
from paddock.pass_metrics import JOBS, pass_metrics

SQL = statements("paddock.background.sql", "background.sql")
UNHEALTHY_AFTER = 3
# A run that somebody asked for, and one that is given up at a stop, is neither a success nor a failure.
STATUSES: Mapping[str, Literal["success", "failed", "cancelled"]] = {
    "completed": "success",
    "failed": "failed",
    "cancelled": "cancelled",
}


# Codes of passes that did not come to say that they failed.
STOPPED = frozenset({"attempts_exhausted", "worker_lost", "turn_timeout", "timed_out"})


@dataclass(frozen=True, slots=True)
class Place:
    now: datetime
    cursor: JsonObject | None
    notes: JsonObject


@dataclass(frozen=True, slots=True)
class State:
    """A background job as it stands. `status`: idle, queued or running."""

    name: str
    every: timedelta
    enabled: bool
    status: str
    job_id: JobId | None
    # Since when the job that waits could have been claimed.
    waits_since: datetime | None
    next_at: datetime | None
    last_job_id: JobId | None
    last_status: str | None
    last_started_at: datetime | None
    last_ended_at: datetime | None
    last_success_at: datetime | None
    duration_seconds: float | None
    error: JsonObject | None
    failures_in_a_row: int
    failing_since: datetime | None
    found: Mapping[str, int] | None
    notes: JsonObject | None
    misfires: int
    last_triggered_at: datetime | None
    last_trigger: JsonObject | None
    now: datetime

    @property
    def healthy(self) -> bool:
        return self.failures_in_a_row < UNHEALTHY_AFTER

    @property
    def held_back(self) -> int:
        """Orphans that the last pass found and, being too many, did not delete."""
        return (self.found or {}).get("orphaned_pods_held_back", 0)

    @property
    def held_back_names(self) -> list[str]:
        """The first of them."""
        named = (self.notes or {}).get("orphaned_pods_held_back") if self.held_back else None
        return [str(name) for name in named] if isinstance(named, list) else []


async def now(db: Database) -> datetime:
    at: datetime = await db.fetchval(SQL["clock"])
    return at


async def place(db: Database, name: str) -> Place:
    row = await db.fetchrow(SQL["place"], name)
    assert row is not None
    cursor, notes = (None if row[name] is None else orjson.loads(row[name]) for name in ("cursor", "notes"))
    return Place(row["now"], cursor, notes or {})


async def ended(tx: Transaction, job: Job) -> None:
    """The hook of every background kind: the row, and what is counted once it is committed."""
    status = STATUSES[job.status]
    result: Mapping[str, Any] = job.result if isinstance(job.result, dict) else {}
    error = None if job.error_code is None else {"code": job.error_code, "message": job.error_message}
    row = await tx.fetchrow(
        SQL["end_pass"],
        job.kind,
        job.id,
        status,
        job.started_at,
        job.run_seconds,
        _json(error),
        orjson.dumps(result.get("found") or {}).decode(),
        _json(result.get("cursor")),
        _json(result.get("notes")),
    )
    if (seconds := result.get("again_in_seconds")) is not None:
        await schedules.sooner(tx, job.kind, timedelta(seconds=seconds))
    if status != "cancelled":
        _count(tx, job.kind, status, job.run_seconds)
    if row is not None:
        tx.after_commit.append(partial(_tell, row, job))


def _json(value: object) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _count(tx: Transaction, name: str, status: str, seconds: float) -> None:
    metrics = pass_metrics()
    tx.count(metrics.executions(name, status))
    tx.observe(metrics.execution_seconds(name), seconds)
    own = metrics.passed(name)
    if own is not None and status == "success":
        tx.count(own[0])
        tx.observe(own[1], seconds)


def _tell(row: asyncpg.Record, job: Job) -> None:
    from paddock.background.passes import logger_of

    request = job.payload.get("request_id")
    log = logger_of(job.kind, **({} if request is None else {"request_id": request}))
    if row["misfired"] > 0:
        log.warning("job_misfired", runs_left_out=row["misfired"])
    if job.status == "failed" and job.error_code in STOPPED:
        # The pass itself could not say it: it was stopped, or its replica died.
        log.error("job_failed", error=job.error_message, error_code=job.error_code)
    show(row)


def show(row: asyncpg.Record) -> None:
    metrics, name = pass_metrics(), row["name"]
    metrics.health(name).set(int(row["failures_in_a_row"] < UNHEALTHY_AFTER))
    if row["last_success_at"] is not None:
        metrics.last_success(name).set(row["last_success_at"].timestamp())
    if name == "reconciliation" and row["found"] is not None:
        metrics.orphans_current.set(orjson.loads(row["found"]).get("orphaned_pods_detected", 0))


async def states(db: Database) -> list[State]:
    """All six, in their order."""
    rows = {row["name"]: row for row in await db.fetch(SQL["states"])}
    return [_state(rows[name]) for name in JOBS if name in rows]


async def show_all(db: Database) -> None:
    for row in await db.fetch(SQL["states"]):
        if row["name"] in JOBS:
            show(row)
            every = row["every"].total_seconds() if row["enabled"] and row["every"] is not None else 0
            pass_metrics().interval(row["name"]).set(every)


def _state(row: asyncpg.Record) -> State:
    known: dict[str, Any] = {name: row[name] for name in State.__slots__ if name not in ("status", "job_id")}
    for name in ("error", "found", "notes", "last_trigger"):
        known[name] = None if row[name] is None else orjson.loads(row[name])
    status = "idle" if row["live_id"] is None else "running" if row["live_status"] == "claimed" else "queued"
    return State(**known, status=status, job_id=row["live_id"])
