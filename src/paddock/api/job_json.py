"""A job as JSON: the one function every route and the stream show jobs with.

`job_json` is the whole job. `brief_job_json` leaves out what may be large (payload, saved, result, errors): lists and
streams hold a thousand of them at a time.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import Job, JobId
from paddock.jobs.reading import Placed
from paddock.jobs.schedule_runs import ordered_job
from paddock.log import masked

EXAMPLE_ID = "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7"


class BriefJob(BaseModel):
    """A job without its payload, saved state, result and errors."""

    model_config = ConfigDict(title="BriefJob")

    id: UUID = Field(examples=[EXAMPLE_ID])
    kind: str
    status: str
    priority: int
    owner: str
    role: str | None
    tags: list[str]
    about: str | None = Field(description="What it is about, like its query or its table: one line, as its kind says.")
    report: dict[str, Any] | None
    error_code: str | None
    error_message: str | None
    due_at: datetime | None
    visible_at: datetime | None
    attempt_id: UUID | None
    ended_by: UUID | None
    session_id: UUID | None
    claimed_by: str | None
    claimed_at: datetime | None
    turn_count: int
    failure_count: int
    cluster_count: int
    lost_count: int
    attempt_count: int
    waiting_on: str | None
    lock_key: str | None
    group_id: UUID | None
    retry_of: UUID | None
    retried_by: UUID | None
    cleanup_of: UUID | None
    schedule: str | None
    created_at: datetime
    started_at: datetime | None
    submitted_at: datetime | None
    completed_at: datetime | None
    run_seconds: float
    wait_seconds: float
    links: dict[str, str]


class WholeJob(BriefJob):
    """A job as `GET /api/jobs/{id}` shows it."""

    model_config = ConfigDict(title="Job")

    payload: dict[str, Any]
    saved: dict[str, Any] | None
    result: Any
    errors: list[dict[str, Any]]


BRIEF = tuple(name for name in BriefJob.model_fields if name != "links")


def brief_job_json(job: Job) -> dict[str, Any]:
    shown = {name: getattr(job, name) for name in BRIEF}
    shown["links"] = links(job)
    return shown


def some_job_json(job: Job | Placed, fields: Collection[str]) -> dict[str, Any]:
    """Its id, and of what `brief_job_json` shows these."""
    shown = {name: getattr(job, name) for name in BRIEF if name in fields or name == "id"}
    return shown | ({"links": links(job)} if isinstance(job, Job) and "links" in fields else {})


def job_json(job: Job, kinds: Kinds) -> dict[str, Any]:
    shown = brief_job_json(job)
    ordered = ordered_job(kinds, job)
    if ordered is not None:
        shown["links"]["ordered_job"] = location(ordered)
    return {
        **shown,
        "payload": masked(job.payload),
        "saved": public_saved(job.saved, kinds.get(job.kind)),
        "result": masked(job.result),
        "errors": job.errors,
    }


def public_saved(saved: Mapping[str, Any] | None, kind: Kind | None) -> dict[str, Any] | None:
    """Saved state holds capability URLs and upload ids: a person sees only what the kind names."""
    if saved is None or kind is None:
        return None
    shown = {name: masked(saved[name]) for name in kind.public_saved if name in saved}
    return shown or None


def links(job: Job) -> dict[str, str]:
    own = location(job.id)
    found = {"self": own, "timeline": f"{own}/timeline", "logs": f"{own}/logs"}
    if job.ended:
        if job.status != "completed" and job.retried_by is None:
            found["retry"] = f"{own}/retry"
    else:
        found["cancel"] = f"{own}/cancel"
    if job.group_id is not None:
        found["group"] = f"/api/groups/{job.group_id}"
    for name in ("retry_of", "retried_by", "cleanup_of"):
        related = getattr(job, name)
        if related is not None:
            found[name] = location(related)
    return found


def location(id: JobId) -> str:
    return f"/api/jobs/{id}"


EXAMPLE: dict[str, Any] = {
    "id": EXAMPLE_ID,
    "kind": "probe",
    "status": "claimed",
    "priority": 3,
    "owner": "ada",
    "role": None,
    "tags": ["demo"],
    "about": None,
    "report": {"percent": 40, "phase": "turn 2 of 5"},
    "error_code": None,
    "error_message": None,
    "due_at": "2026-11-15T09:30:00.000000Z",
    "visible_at": "2026-11-15T09:31:05.120000Z",
    "attempt_id": "6b1f3f0e-6f2b-4d0c-9c59-9f4f6a2f6f10",
    "ended_by": None,
    "session_id": "0d0f5d0a-8a1c-4a55-b6a1-0f6d6f1a2b3c",
    "claimed_by": "worker-1",
    "claimed_at": "2026-11-15T09:30:00.012000Z",
    "turn_count": 2,
    "failure_count": 0,
    "cluster_count": 0,
    "lost_count": 0,
    "attempt_count": 1,
    "waiting_on": None,
    "lock_key": None,
    "group_id": None,
    "retry_of": None,
    "retried_by": None,
    "cleanup_of": None,
    "schedule": None,
    "created_at": "2026-11-15T09:29:59.998000Z",
    "started_at": "2026-11-15T09:30:00.012000Z",
    "submitted_at": None,
    "completed_at": None,
    "run_seconds": 1.2,
    "wait_seconds": 0.014,
    "links": {
        "self": f"/api/jobs/{EXAMPLE_ID}",
        "timeline": f"/api/jobs/{EXAMPLE_ID}/timeline",
        "logs": f"/api/jobs/{EXAMPLE_ID}/logs",
        "cancel": f"/api/jobs/{EXAMPLE_ID}/cancel",
    },
}
WHOLE_EXAMPLE: dict[str, Any] = {**EXAMPLE, "payload": {"turns": 5}, "saved": None, "result": None, "errors": []}
