"""What an operator may do with background jobs, whoever asks: a route, a page or a command only translates."""

from datetime import datetime, timedelta
from math import ceil
from typing import Any

import orjson
import structlog

from paddock.api.durations import iso
from paddock.api.errors import ApiError, invalid_field
from paddock.api.plane import ControlPlane
from paddock.background import records
from paddock.background.passes import PassPayload, logger_of
from paddock.background.records import SQL, State
from paddock.db.pool import Database, Transaction
from paddock.engines.registry import settings_from
from paddock.jobs import enqueueing, schedules
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.model import Job, JobId
from paddock.pass_metrics import JOBS

BETWEEN_TRIGGERS = timedelta(seconds=60)
LONGEST_REASON = 500
MAY_FORCE = ("reconciliation",)


async def trigger(
    core: Core,
    name: str,
    *,
    actor: str,
    reason: str,
    force: bool = False,
    engine: str | None = None,
    idempotency: IdempotencyKey | None = None,
) -> Job:
    """A pass now. It waits for one that runs, and shifts no schedule. Once a minute for each job, whichever replica is
    asked: the job's row is locked while that is looked at."""
    _check(name, reason, force)
    request_id = structlog.contextvars.get_contextvars().get("request_id")
    payload = PassPayload(
        triggered_by=actor, reason=reason.strip(), request_id=request_id, force=force, engine=engine
    ).model_dump(exclude_none=True, exclude_defaults=True)

    async def make(tx: Transaction) -> JobId:
        row = await tx.fetchrow(SQL["job_for_trigger"], name)
        if row is None:
            raise ApiError(503, "not_started", f"The background job '{name}' is not known to the database yet.")
        _check_rate(row["last_triggered_at"], row["now"])
        job = await schedules.run_within(core, tx, name, actor=actor, payload=payload, reason=reason.strip())
        told = {"by": actor, "reason": reason.strip(), "job_id": str(job), "force": force}
        await tx.execute(SQL["triggered"], name, orjson.dumps(told).decode())
        return job

    [job] = await enqueueing.made(core, [await enqueueing.once(core, idempotency, make)])
    logger_of(name).info(
        "manual_job_trigger", triggered_by=actor, reason=reason.strip(), job_id=str(job.id), force=force
    )
    return job


async def refresh(
    plane: ControlPlane,
    engine: str | None,
    *,
    actor: str,
    reason: str,
    idempotency: IdempotencyKey | None = None,
) -> Job:
    """A trigger of schema_cache, for one engine or for all."""
    known = settings_from(plane.config)
    if engine is not None and engine not in known:
        raise invalid_field("engine", f"There is no engine '{engine[:100]}'; there are {', '.join(sorted(known))}.")
    return await trigger(plane.core, "schema_cache", actor=actor, reason=reason, engine=engine, idempotency=idempotency)


def _check(name: str, reason: str, force: bool) -> None:
    if name not in JOBS:
        raise invalid_field("job_name", f"There is no background job '{name[:100]}'; there are {', '.join(JOBS)}.")
    if not reason.strip():
        raise invalid_field("reason", "Say why: the reason is kept in the audit log.")
    if len(reason) > LONGEST_REASON:
        raise invalid_field("reason", f"A reason has at most {LONGEST_REASON} characters.")
    if force and name not in MAY_FORCE:
        raise invalid_field("force", f"`force` means something for {', '.join(MAY_FORCE)} alone.")


def _check_rate(before: datetime | None, now: datetime) -> None:
    left = BETWEEN_TRIGGERS - (now - before) if before is not None else timedelta(0)
    if left > timedelta(0):
        seconds = ceil(left.total_seconds())
        raise ApiError(
            429,
            "rate_limited",
            f"Wait {seconds}s before triggering again",
            details={"retry_after_seconds": seconds},
            headers={"Retry-After": str(seconds)},
        )


def trigger_json(job: Job) -> dict[str, Any]:
    return {
        "job_name": job.kind,
        "status": "queued",
        "triggered_at": job.created_at,
        "triggered_by": job.payload.get("triggered_by"),
        "reason": job.payload.get("reason"),
        "job_id": job.id,
    }


def state_json(state: State) -> dict[str, Any]:
    return {
        "job_name": state.name,
        "interval_seconds": int(state.every.total_seconds()),
        "interval": iso(state.every),
        "enabled": state.enabled,
        "status": state.status,
        "job_id": state.job_id,
        "next_run_at": state.next_at if state.enabled else None,
        "last_started_at": state.last_started_at,
        "last_ended_at": state.last_ended_at,
        "last_success_at": state.last_success_at,
        "last_status": state.last_status,
        "last_job_id": state.last_job_id,
        "duration_seconds": state.duration_seconds,
        "error": state.error,
        "failures_in_a_row": state.failures_in_a_row,
        "failing_since": state.failing_since,
        "healthy": state.healthy,
        "misfires": state.misfires,
        "found": state.found,
        "held_back": state.held_back_names,
        "last_trigger": None if state.last_trigger is None else {"at": state.last_triggered_at, **state.last_trigger},
    }


async def health(db: Database) -> dict[str, Any]:
    """For `GET /api/ops/state`."""
    found = await records.states(db)
    return {
        "background_jobs": {
            state.name: {
                "healthy": state.healthy,
                "enabled": state.enabled,
                "last_success_at": state.last_success_at,
                "failures_in_a_row": state.failures_in_a_row,
            }
            for state in found
        }
    }
