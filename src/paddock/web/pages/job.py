"""One job: what it is, where it stands, what happened to it, what can be done."""

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.errors import ApiError
from paddock.api.job_json import job_json
from paddock.api.pagination import encode
from paddock.api.routes.jobs import visible_job
from paddock.api.tokens import Caller
from paddock.jobs import logs, reading
from paddock.web.frame import back, field, form, page, plane_of, render
from paddock.why import explain

LOG_BYTES = 64 * 1024


def routes() -> list[Route]:
    return [
        page("/jobs/{job_id}", show),
        form("/jobs/{job_id}/cancel", cancel),
        form("/jobs/{job_id}/retry", retry),
        form("/jobs/{job_id}/run-now", run_now),
    ]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    shown = orjson.loads(encode(job_json(job, plane.core.kinds)))
    timeline = orjson.loads(encode(await reading.timeline(plane.core.db, job.id)))
    log = await logs.tail(plane.core.db, job.id, limit_bytes=LOG_BYTES)
    return await render(
        request,
        caller,
        "job.html",
        job=job,
        shown=shown,
        why=explain(shown, timeline),
        log="".join(chunk.lines for chunk in log.chunks),
    )


async def cancel(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    reason = await field(request, "reason") or "from the dashboard"
    verdict = (await plane.core.cancel([job.id], actor=caller.actor, reason=reason))[job.id]
    if verdict == "finished":
        raise ApiError(409, "already_finished", "The job had ended already.")
    if verdict == "cleanup":
        raise ApiError(409, "cleanup_not_cancellable", "A cleanup is not cancelled; it ends by itself.")
    return back(request, f"/jobs/{job.id}", "The job was cancelled.")


async def retry(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    reason = await field(request, "reason") or "from the dashboard"
    new = await plane.core.retry(job.id, actor=caller.actor, reason=reason)
    return back(request, f"/jobs/{new.id}", "This is the new job; the one before stays as it was.")


async def run_now(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    await plane.core.run_now(job.id, actor=caller.actor)
    return back(request, f"/jobs/{job.id}", "The job is due now.")
