"""What a caller may do with the algorithms of an instance. Only who may change it may run them: the result becomes part of
the graph that everybody sees."""

import asyncio
import re
import time
from typing import Any
from uuid import UUID

import orjson

from paddock.api.errors import ApiError, invalid_field, not_found
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.instances import activity, endpoints, service
from paddock.instances.algorithms import ALGORITHM
from paddock.instances.model import SQL, Instance, subject_of
from paddock.jobs import reading
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import LockHeld
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Job, JobId, NewJob

SHORTEST_PATH = "shortest_path"
NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
# How long whoever asks waits for the instance's first word, which may be a refusal.
FIRST_WORD_SECONDS = 10.0
STATUS = {"pending": "queued", "claimed": "running", "submitted": "running"}


def checked_name(name: str) -> str:
    if not NAME.match(name):
        raise invalid_field("name", "That is not the name of an algorithm; GET …/algo lists them.")
    return name


async def run(
    plane: ControlPlane,
    caller: Caller,
    text: str,
    name: str,
    parameters: dict[str, Any],
    *,
    idempotency: IdempotencyKey | None = None,
) -> Job:
    """The execution, once the instance has accepted it; what it refuses is refused here."""
    found = await service.changeable(plane, caller, text)
    endpoint = await endpoints.endpoint_of(plane, found.id)
    payload = {
        "instance_id": str(found.id),
        "generation": str(endpoint.generation),
        "algorithm": checked_name(name),
        "parameters": parameters,
        "asked_by": caller.owner,
    }
    job = NewJob(ALGORITHM, payload, owner=found.owner, tags=[subject_of(found.id)])
    try:
        submitted = await plane.core.submit([job], idempotency=idempotency)
    except LockHeld:
        raise await _locked(plane, found) from None
    await activity.note(plane.core.db, found.id)
    return await _first_word(plane, submitted.jobs[0])


async def _first_word(plane: ControlPlane, job: Job) -> Job:
    deadline = time.monotonic() + FIRST_WORD_SECONDS
    while time.monotonic() < deadline and not plane.closing.is_set():
        job = await plane.core.job(job.id) or job
        saved = job.saved or {}
        if "refused" in saved and job.ended:
            refused = saved["refused"]
            await _until_unlocked(plane, job, deadline)
            raise ApiError(
                refused["status"],
                refused["code"],
                refused["message"],
                hint=refused.get("hint"),
                details=refused["details"],
            )
        if job.ended or saved.get("accepted"):
            break
        await asyncio.sleep(0.05)
    return job


async def _until_unlocked(plane: ControlPlane, job: Job, deadline: float) -> None:
    """The cleanup of what was refused holds the lock for a moment: whoever corrects their request at once must not hear that
    an algorithm runs."""
    instance = UUID(job.payload["instance_id"])
    while time.monotonic() < deadline and not plane.closing.is_set():
        row = await plane.core.db.fetchrow(SQL["algorithm_at_work"], instance)
        if row is None or row["cleanup_of"] != job.id:
            return
        await asyncio.sleep(0.05)


async def _locked(plane: ControlPlane, instance: Instance) -> ApiError:
    at_work = await lock(plane, instance)
    if at_work is None:
        return ApiError(409, "RESOURCE_LOCKED", "Another algorithm has just ended.", hint="Try again in a moment.")
    return ApiError(
        409,
        "RESOURCE_LOCKED",
        f"{at_work['holder']} runs {at_work['algorithm']} on this instance since {at_work['since']:%H:%M:%S} UTC.",
        hint="Wait until it ends, or cancel it.",
        details={**at_work, "since": at_work["since"].isoformat()},
    )


async def lock(plane: ControlPlane, instance: Instance) -> dict[str, Any] | None:
    """Who runs what since when; None: nobody."""
    row = await plane.core.db.fetchrow(SQL["algorithm_at_work"], instance.id)
    if row is None:
        return None
    payload = orjson.loads(row["payload"])
    return {
        "execution_id": str(row["cleanup_of"] or row["id"]),
        "holder": payload["asked_by"],
        "algorithm": payload["algorithm"],
        "since": row["started_at"] or row["created_at"],
    }


async def page(
    plane: ControlPlane, caller: Caller, text: str, *, limit: int, cursor: str | None
) -> tuple[list[dict[str, Any]], str | None]:
    """Newest first."""
    found = await service.visible(plane, caller, text)
    asked = Filter(kind=ALGORITHM, tag=subject_of(found.id), include_cleanups=False)
    jobs = await reading.page(plane.core.db, asked, limit=limit, cursor=cursor)
    return [execution_json(job) for job in jobs.jobs], jobs.next_cursor


async def execution(plane: ControlPlane, caller: Caller, text: str, execution_id: str) -> Job:
    found = await service.visible(plane, caller, text)
    job = await plane.core.job(JobId(path_id(execution_id, "execution")))
    if job is None or job.kind != ALGORITHM or job.payload.get("instance_id") != str(found.id):
        raise not_found("execution")
    return job


async def cancel(plane: ControlPlane, caller: Caller, text: str, execution_id: str) -> Job:
    found = await service.changeable(plane, caller, text)
    job = await execution(plane, caller, text, execution_id)
    verdicts = await plane.core.cancel([job.id], actor=caller.actor)
    if verdicts[job.id] != "cancelled":
        raise ApiError(409, "already_finished", "The execution has ended already; nothing was cancelled.")
    async with plane.core.db.transaction() as tx:
        await audit(
            tx, caller.actor, "algorithm_cancelled", subject_of(found.id), details={"execution_id": str(job.id)}
        )
    return await execution(plane, caller, text, execution_id)


def execution_json(job: Job) -> dict[str, Any]:
    progress = (job.saved or {}).get("progress") or {}
    error = None
    if job.error_code is not None and job.ended:
        error = {"code": job.error_code, "message": job.error_message}
    return {
        "execution_id": job.id,
        "algorithm": job.payload["algorithm"],
        "status": STATUS.get(job.status, job.status),
        "parameters": job.payload["parameters"],
        "asked_by": job.payload["asked_by"],
        "percent": progress.get("percent"),
        "phase": progress.get("phase"),
        "result": job.result,
        "error": error,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "completed_at": job.completed_at,
    }
