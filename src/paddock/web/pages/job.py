"""One job: what it is, where it stands, what happened to it, what can be done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.edge import root_of
from paddock.api.plane import ControlPlane
from paddock.api.services.changing import cancel_one
from paddock.api.services.jobs import visible_job
from paddock.api.services.submitting import check_retry
from paddock.api.tokens import Caller
from paddock.capability import each
from paddock.jobs import grouping, logs, reading
from paddock.jobs.figures.overviews import SQL as OVERVIEWS
from paddock.jobs.model import Group, Job
from paddock.jobs.timelines import TimelineEntry
from paddock.log import masked
from paddock.web import job_actions, job_log, job_words, timeline, words
from paddock.web.frame import back, field, form, page, plane_of, regions, render
from paddock.web.progress import progress_now
from paddock.web.purposes import Purpose
from paddock.web.standing import standing_of

LOG_BYTES = 64 * 1024


def routes() -> list[Route]:
    return [
        page("/jobs/{job_id}", show, PEOPLE),
        page("/jobs/{job_id}/log", download_log, PEOPLE),
        form("/jobs/{job_id}/cancel", cancel, PEOPLE),
        form("/jobs/{job_id}/retry", retry, PEOPLE),
        form("/jobs/{job_id}/run-now", run_now, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    """A page that watches a job asks each second: a region reads only what it shows."""
    plane, asked = plane_of(request), regions(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])

    def wanted(*names: str) -> bool:
        return not asked or not asked.isdisjoint(names)

    now = datetime.now(UTC) if job.ended else await plane.core.db.fetchval(OVERVIEWS["clock"])
    shown = job_words.job_as_json(plane, job)
    values: dict[str, Any] = {"shown": shown, "result": masked(job.result), "progress": progress_now(job, now)}
    entries = await reading.timeline_of(plane.core.db, job) if wanted("job", "course", "lines") else []
    # Before its end it has no cleanup to be drawn.
    related = await _related(plane, caller, job) if wanted("related") or (wanted("course") and job.ended) else None
    if wanted("job"):
        values |= await _standing(request, caller, job, entries, now)
        kind = plane.core.kinds.get(job.kind)
        values["repeats"] = job.ended and job.cleanup_of is None and job_actions.may_submit(kind, caller)
    if wanted("course"):
        drawing = timeline.draw(job, entries, now, None if related is None else related.cleanup)
        values |= {"drawing": drawing, "totals": timeline.totals(job, now), "steps": job_words.steps(entries, job)}
    if wanted("lines"):
        values["log"] = await _log(plane, job, entries, request.query_params.get("after") if asked else None)
    if wanted("related"):
        ordered = await job_words.ordered_by(plane, caller, job)
        values |= {"related": related, "group": await _group(plane, caller, job), "ordered": ordered}
    if wanted("commands"):
        values["commands"] = job_actions.as_commands(plane, caller, job, shown["payload"], _server(request))
    if not asked:
        values["made_for"] = await _made_for(plane, caller, job)
    return await render(request, caller, "job.html", job=job, **values)


async def _standing(
    request: Request, caller: Caller, job: Job, entries: Sequence[TimelineEntry], now: datetime
) -> dict[str, Any]:
    why = await job_words.explained(request, caller, job, entries, now)
    drained = (await standing_of(request)).drained
    return {
        "sentence": job_words.marked_up(why.told),
        "looks_again": job_words.looks_again(job, now),
        "trouble": job_words.trouble(job, why),
        "can": job_actions.possible(plane_of(request), caller, job, drained=drained, now=now),
    }


def _server(request: Request) -> str:
    """The address that people reach us by."""
    public = plane_of(request).config.public_url
    return (public or str(request.base_url).rstrip("/") + root_of(request.scope)).rstrip("/")


# What belongs to it


async def _related(plane: ControlPlane, caller: Caller, job: Job) -> reading.Related:
    found = await reading.related(plane.core.db, job)

    def seen(one: reading.Relative | None) -> reading.Relative | None:
        return one if one is not None and caller.sees(one.owner) else None

    return replace(
        found,
        parent=seen(found.parent),
        follow_ups=[one for one in found.follow_ups if caller.sees(one.owner)],
        retry_of=seen(found.retry_of),
        retried_by=seen(found.retried_by),
        cleanup=seen(found.cleanup),
        cleanup_of=seen(found.cleanup_of),
    )


async def _group(plane: ControlPlane, caller: Caller, job: Job) -> Group | None:
    if job.group_id is None:
        return None
    row = await plane.core.db.fetchrow(grouping.SQL["group"], job.group_id)
    return grouping.group_of(row) if row is not None and caller.sees(row["owner"]) else None


async def _made_for(plane: ControlPlane, caller: Caller, job: Job) -> list[Purpose]:
    """What it makes or takes away, as long as there is one: each capability knows its own."""
    return [purpose for _, made_for in each("made_for") for purpose in await made_for(plane, caller, job)]


# The log


@dataclass(frozen=True, slots=True)
class Log:
    """`nothing` says why there is none and never will be: the job has ended."""

    parts: Sequence[job_log.Part]
    after: str | None
    cut: bool
    nothing: str | None = None


async def _log(plane: ControlPlane, job: Job, entries: Sequence[TimelineEntry], after: str | None = None) -> Log:
    tail = await logs.tail(plane.core.db, job.id, after, LOG_BYTES)
    workers: dict[UUID, str] = {
        entry.attempt_id: entry.worker for entry in entries if entry.attempt_id is not None and entry.worker
    }
    for attempt in (job.attempt_id, job.ended_by):
        if attempt is not None and job.claimed_by is not None:
            workers.setdefault(attempt, job.claimed_by)
    nothing = None if tail.chunks else _why_no_log(job, plane.config.logs_kept)
    return Log(job_log.parts(tail.chunks, workers), tail.after, tail.cut, nothing)


def _why_no_log(job: Job, kept: timedelta) -> str | None:
    if job.completed_at is None:
        return None
    if job.started_at is None:
        return "It never ran, so it logged nothing."
    if datetime.now(UTC) - job.completed_at > kept:
        return f"Logs are kept for {words.duration(kept)}, and it ended longer ago."
    return "It logged nothing."


async def download_log(request: Request, caller: Caller) -> Response:
    """All that is kept of it, as it was written."""
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    tail = await logs.tail(plane.core.db, job.id)
    text = "".join(chunk.lines if chunk.lines.endswith("\n") else f"{chunk.lines}\n" for chunk in tail.chunks)
    headers = {"content-disposition": f'attachment; filename="{job.id}.log"', "cache-control": "no-store"}
    return PlainTextResponse(text, headers=headers)


# What people do


async def cancel(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    await cancel_one(plane, caller, job, await field(request, "reason") or "from the dashboard")
    return back(request, f"/jobs/{job.id}", "The job was cancelled.")


async def retry(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    check_retry(plane, caller, job)
    reason = await field(request, "reason") or "from the dashboard"
    new = await plane.core.retry(job.id, actor=caller.actor, reason=reason)
    return back(request, f"/jobs/{new.id}", "This is the new job; the one before stays as it was.")


async def run_now(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])
    await plane.core.run_now(job.id, actor=caller.actor)
    return back(request, f"/jobs/{job.id}", "The job is due now.")
