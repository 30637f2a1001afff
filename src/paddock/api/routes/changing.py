"""Ending, repeating and hurrying jobs: one at a time, or all that match a filter."""

from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.errors import ApiError, not_found
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import optional_id
from paddock.api.job_json import WHOLE_EXAMPLE, WholeJob, job_json, location
from paddock.api.pagination import answer, split
from paddock.api.parts import check_part
from paddock.api.plane import Plane, ThePlane
from paddock.api.routes.jobs import visible_job
from paddock.api.routes.submitting import check_retry, rights_of
from paddock.api.tokens import Caller
from paddock.jobs import bulk, reading
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Job, NewJob
from paddock.jobs.overviews import SQL as OVERVIEWS

COUNTED_EXACTLY = 10_000
# A person waits for it before they confirm.
COUNTED_WITHIN = timedelta(milliseconds=400)

router = guarded_router("jobs")

Words = Annotated[str, StringConstraints(min_length=1, max_length=500)]


class Reason(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "wrong table"}]})

    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


class FilterBody(BaseModel):
    """As in `GET /api/jobs`. Bounded by the moment of asking: jobs made later do not match."""

    model_config = ConfigDict(extra="forbid", title="JobFilter")

    kind: Words | None = None
    status: Words | list[Words] | None = None
    owner: Words | None = None
    group: Words | None = None
    worker: Words | None = None
    tag: Words | None = None
    error_code: Words | None = None
    since: AwareDatetime | None = None
    until: AwareDatetime | None = None
    q: Words | None = None
    schedule: Words | None = None
    retrying: bool = False


class BulkBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"filter": {"kind": "probe", "status": "failed"}, "dry_run": True}]},
    )

    filter: FilterBody = Field(default_factory=FilterBody)
    all: bool = Field(default=False, description="Must be true when the filter leaves nothing out.")
    dry_run: bool = Field(
        default=False,
        description="Only count: a number; or text like `10,000+` where there are more, and like `3,120+` or `0+` where "
        "counting further would take too long: at least so many match.",
    )
    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


@router.post(
    "/api/jobs/cancel",
    status_code=202,
    summary="Cancel all jobs that match",
    responses=documented(WHOLE_EXAMPLE, WholeJob, status=202, description="A job of kind `bulk` does it in chunks."),
)
async def cancel_jobs(
    request: Request, body: BulkBody, plane: ThePlane, caller: Asking, key: KeyHeader = None
) -> Response:
    return await _bulk(request, "cancel", body, plane, caller, key)


@router.post(
    "/api/jobs/retry",
    status_code=202,
    summary="Retry all ended jobs that match",
    responses=documented(WHOLE_EXAMPLE, WholeJob, status=202, description="A job of kind `bulk` does it in chunks."),
)
async def retry_jobs(
    request: Request, body: BulkBody, plane: ThePlane, caller: Asking, key: KeyHeader = None
) -> Response:
    return await _bulk(request, "retry", body, plane, caller, key)


async def _bulk(
    request: Request, action: bulk.Action, body: BulkBody, plane: Plane, caller: Caller, key: str | None
) -> Response:
    asked = _filter(body.filter, caller)
    if body.dry_run:
        _check_meant(action, asked, body.all)
        counted = await count_matching(plane, caller, action, asked)
        shown: Any = f"{counted.n:,}+" if counted.more else counted.n
        return answer({"dry_run": True, "action": action, "count": shown})
    idempotency = key_of(caller, f"POST /api/jobs/{action}", key, await request.json())
    job = await act_on_matching(
        plane, caller, action, asked, all_jobs=body.all, reason=body.reason, idempotency=idempotency
    )
    return answer(job_json(job, plane.core.kinds), 202, {"Location": location(job.id)})


async def count_matching(plane: Plane, caller: Caller, action: bulk.Action, asked: Filter) -> reading.Count:
    """How many the action could do something to."""
    narrowed = bulk.narrow(action, _scoped(caller, asked))
    return await reading.count(plane.core.db, narrowed, at_most=COUNTED_EXACTLY, budget=COUNTED_WITHIN)


async def act_on_matching(
    plane: Plane,
    caller: Caller,
    action: bulk.Action,
    asked: Filter,
    *,
    all_jobs: bool,
    reason: str | None,
    idempotency: IdempotencyKey | None,
) -> Job:
    """The job that goes through all that match now."""
    _check_meant(action, asked, all_jobs)
    now = await plane.core.db.fetchval(OVERVIEWS["clock"])
    payload = bulk.payload(
        action,
        _scoped(caller, asked),
        until=now if asked.until is None else min(asked.until, now),
        actor=caller.actor,
        reason=reason,
        all_jobs=all_jobs,
        rights=rights_of(plane, caller),
    )
    # Drain mode refuses retries, which are new work; ending work is always possible.
    submitted = await plane.core.submit(
        [NewJob(bulk.BULK.name, payload, owner=caller.owner)], public=action == "retry", idempotency=idempotency
    )
    [job] = submitted.jobs
    return job


def _check_meant(action: bulk.Action, asked: Filter, all_jobs: bool) -> None:
    if asked.empty and not all_jobs:
        raise ApiError(
            422,
            "empty_filter",
            f"The filter is empty: this would {action} every job.",
            hint="Send a filter, or `all: true` if you mean it.",
        )


def _scoped(caller: Caller, asked: Filter) -> Filter:
    return asked if caller.scope is None else replace(asked, owner=caller.scope)


def _filter(body: FilterBody, caller: Caller) -> Filter:
    if body.owner is not None and not caller.sees(body.owner):
        raise ApiError(403, "not_allowed", "You may cancel and retry your own jobs only.")
    content = body.model_dump(exclude_none=True)
    content["status"] = split([body.status] if isinstance(body.status, str) else body.status)
    content["group"] = optional_id(body.group, "filter.group")
    return Filter(**content).checked()


@router.post(
    "/api/jobs/{job_id}/cancel",
    summary="Cancel a job",
    responses=documented({**WHOLE_EXAMPLE, "status": "cancelled"}, WholeJob),
)
async def cancel_job(job_id: str, plane: ThePlane, caller: Asking, body: Reason | None = None) -> Response:
    job = await visible_job(plane, caller, job_id)
    check_part(plane, caller, job)
    reason = None if body is None else body.reason
    verdict = (await plane.core.cancel([job.id], actor=caller.actor, reason=reason))[job.id]
    if verdict == "finished":
        raise ApiError(409, "already_finished", "The job has ended already; nothing was cancelled.")
    if verdict == "cleanup":
        raise ApiError(
            409,
            "cleanup_not_cancellable",
            "A cleanup is not cancelled: it frees what an ended job left behind, its lock among it.",
            hint="It ends by itself; `paddock why` says what it waits for.",
        )
    if verdict == "unknown":
        raise not_found("job")
    return answer(job_json(await plane.core.job(job.id) or job, plane.core.kinds))


@router.post(
    "/api/jobs/{job_id}/retry",
    status_code=202,
    summary="Run an ended job again, as a new job",
    responses=documented(WHOLE_EXAMPLE, WholeJob, status=202, description="The new job; `retry_of` is the old one."),
)
async def retry_job(
    job_id: str, plane: ThePlane, caller: Asking, body: Reason | None = None, key: KeyHeader = None
) -> Response:
    job = await visible_job(plane, caller, job_id)
    check_retry(plane, caller, job)
    reason = None if body is None else body.reason
    idempotency = key_of(caller, f"POST /api/jobs/{job.id}/retry", key, reason)
    new = await plane.core.retry(job.id, actor=caller.actor, reason=reason, idempotency=idempotency)
    return answer(job_json(new, plane.core.kinds), 202, {"Location": location(new.id)})


@router.post(
    "/api/jobs/{job_id}/run-now",
    summary="Make a job that waits for its time due now",
    responses=documented(WHOLE_EXAMPLE, WholeJob),
)
async def run_now(job_id: str, plane: ThePlane, caller: Asking) -> Response:
    job = await visible_job(plane, caller, job_id)
    now = await plane.core.run_now(job.id, actor=caller.actor)
    return answer(job_json(now, plane.core.kinds))
