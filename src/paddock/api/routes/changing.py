"""Ending, repeating and hurrying jobs: one at a time, or all that match a filter."""

from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.errors import ApiError
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import optional_id
from paddock.api.job_json import WHOLE_EXAMPLE, WholeJob, job_json, location
from paddock.api.pagination import answer, split
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.services.changing import _check_meant, act_on_matching, cancel_one, count_matching
from paddock.api.services.jobs import visible_job
from paddock.api.services.submitting import check_retry
from paddock.api.tokens import Caller
from paddock.jobs import bulk
from paddock.jobs.filtering import Filter

router = guarded_router("jobs", PEOPLE)

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
    request: Request, action: bulk.Action, body: BulkBody, plane: ControlPlane, caller: Caller, key: str | None
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
    await cancel_one(plane, caller, job, None if body is None else body.reason)
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
