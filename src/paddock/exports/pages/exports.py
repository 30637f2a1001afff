"""Plain exports: the list, and one of them with its progress, its files and what can be done."""

from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.keyset import cursor_after, read_place
from paddock.api.plane import ControlPlane
from paddock.api.services.submitting import check_retry
from paddock.api.tokens import Caller
from paddock.exports import export_files, plain
from paddock.exports.pages import export_words
from paddock.exports.pages.engine_choice import engines_of
from paddock.exports.plain import Export
from paddock.exports.service import visible_export
from paddock.jobs.errors import Refused
from paddock.jobs.figures.overviews import SQL as OVERVIEWS
from paddock.jobs.model import Job
from paddock.log import masked
from paddock.web import job_actions
from paddock.web.faults import fault_of_job
from paddock.web.frame import back, clean, field, form, page, plane_of, regions, render
from paddock.web.progress import progress_now, progress_of
from paddock.web.standing import standing_of

PAGE_LENGTH = 50
MOST_FILES = 200
FILTERS = ("q", "status", "engine", "owner")
STATUSES = (("pending", "under way"), "completed", "failed", "cancelled", "deleting")


def routes() -> list[Route]:
    return [
        page("/exports", show, PEOPLE),
        page("/exports/{export_id}", show_one, PEOPLE),
        form("/exports/{export_id}/cancel", cancel, PEOPLE),
        form("/exports/{export_id}/retry", retry, PEOPLE),
        form("/exports/{export_id}/delete", delete, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    cursor = request.query_params.get("cursor") or None
    asked = {name: clean(request.query_params.get(name) or "")[:500] or None for name in FILTERS}
    owner = caller.scope or asked["owner"]
    narrowing = {"status": asked["status"], "engine": asked["engine"], "text": asked["q"]}
    db, before = plane_of(request).core.db, read_place(cursor)
    found = await plain.page(db, owner, **narrowing, before=before, limit=PAGE_LENGTH)
    return await render(
        request,
        caller,
        "exports.html",
        exports=found,
        words=export_words,
        summary=export_words.summary(found),
        asked=asked,
        narrowed=any(asked.values()),
        statuses=STATUSES,
        engines=[engine.name for engine in engines_of(plane_of(request).config, caller)],
        progress={export.id: progress_of(export.job) for export in found if export.job is not None},
        cursor=cursor,
        next_cursor=cursor_after(found, PAGE_LENGTH),
    )


async def show_one(request: Request, caller: Caller) -> Response:
    plane, asked = plane_of(request), regions(request)
    export = await visible_export(plane, caller, request.path_params["export_id"])
    job = export.job or await plane.core.job(export.job_id)
    now: datetime = await plane.core.db.fetchval(OVERVIEWS["clock"])
    return await render(
        request,
        caller,
        "export.html",
        export=export,
        asked=export_words.complete_request(masked(export.request)),
        words=export_words,
        job=job,
        job_id=export.job_id if job is None else job.id,
        sentence=export_words.sentence(export, job),
        trouble=export_words.last_error(job),
        fault=fault_of_job(job.errors[-1], masked(job.payload)) if job is not None and job.errors else None,
        progress=None if export.job is None else progress_now(export.job, now),
        can=await _possible(request, caller, export, job, now),
        like=_may_repeat(caller, export),
        files=await _files(plane, export) if not asked or "files" in asked else None,
    )


async def _possible(
    request: Request, caller: Caller, export: Export, job: Job | None, now: datetime
) -> job_actions.Possible | None:
    """What can be done with its job; nothing with one that has left the history, or while it goes."""
    if job is None or export.status in ("completed", "deleting"):
        return None
    drained = (await standing_of(request)).drained
    return job_actions.possible(plane_of(request), caller, job, drained=drained, now=now)


def _may_repeat(caller: Caller, export: Export) -> bool:
    return caller.may_use("engines", export.engine)


async def _files(plane: ControlPlane, export: Export) -> dict[str, Any]:
    """The files, or why they cannot be listed: a store that is away must not take the page with it."""
    if export.status != "completed":
        return {"files": [], "more": 0, "problem": None}
    try:
        found = (await export_files.files_of(plane.config, export)).files
    except Refused as refused:
        return {"files": [], "more": 0, "problem": refused}
    return {"files": found[:MOST_FILES], "more": max(0, len(found) - MOST_FILES), "problem": None}


async def cancel(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    export = await visible_export(plane, caller, request.path_params["export_id"])
    if export.job is None:
        raise ApiError(409, "already_finished", "The export had ended already; nothing was cancelled.")
    reason = await field(request, "reason") or "from the dashboard"
    verdict = (await plane.core.cancel([export.job.id], actor=caller.actor, reason=reason))[export.job.id]
    if verdict == "finished":
        raise ApiError(409, "already_finished", "The export had ended already; nothing was cancelled.")
    return back(request, f"/exports/{export.id}", "The export was cancelled; what it had begun is removed.")


async def retry(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    export = await visible_export(plane, caller, request.path_params["export_id"])
    job = await plane.core.job(export.job_id)
    if job is not None:
        check_retry(plane, caller, job)
    reason = await field(request, "reason") or "from the dashboard"
    await plane.core.retry(export.job_id, actor=caller.actor, reason=reason)
    return back(request, f"/exports/{export.id}", "A new job retries it.")


async def delete(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    export = await visible_export(plane, caller, request.path_params["export_id"])
    await plain.delete(plane.core, export.id, actor=caller.actor)
    return back(request, "/exports", "The export was deleted; its files are removed in a moment.")
