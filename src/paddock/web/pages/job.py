"""One job: what it is, where it stands, what happened to it, what can be done."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from paddock.api.databases import may_dump
from paddock.api.edge import root_of
from paddock.api.errors import ApiError
from paddock.api.parts import check_part
from paddock.api.plane import Plane
from paddock.api.routes.jobs import visible_job
from paddock.api.routes.submitting import check_retry
from paddock.api.tokens import Caller
from paddock.dumps import dumps
from paddock.exports import plain, snapshot_states
from paddock.exports.kinds import EXPORT
from paddock.exports.removing import REMOVE
from paddock.jobs import grouping, logs, reading
from paddock.jobs.model import Group, Job
from paddock.jobs.overviews import SQL as OVERVIEWS
from paddock.jobs.timelines import Entry
from paddock.log import masked
from paddock.web import job_actions, job_log, job_words, timeline, words
from paddock.web.frame import back, field, form, page, plane_of, regions, render
from paddock.web.progress import progress_now
from paddock.web.standing import standing_of

LOG_BYTES = 64 * 1024


def routes() -> list[Route]:
    return [
        page("/jobs/{job_id}", show),
        page("/jobs/{job_id}/log", download_log),
        form("/jobs/{job_id}/cancel", cancel),
        form("/jobs/{job_id}/retry", retry),
        form("/jobs/{job_id}/run-now", run_now),
    ]


async def show(request: Request, caller: Caller) -> Response:
    """A page that watches a job asks each second: a region reads only what it shows."""
    plane, asked = plane_of(request), regions(request)
    job = await visible_job(plane, caller, request.path_params["job_id"])

    def wanted(*names: str) -> bool:
        return not asked or not asked.isdisjoint(names)

    now = datetime.now(UTC) if job.ended else await plane.core.db.fetchval(OVERVIEWS["clock"])
    shown = job_words.shown(plane, job)
    values: dict[str, Any] = {"shown": shown, "result": masked(job.result), "progress": progress_now(job, now)}
    entries = await reading.timeline_of(plane.core.db, job) if wanted("job", "course", "lines") else []
    # Before its end it has no cleanup to be drawn.
    related = await _related(plane, caller, job) if wanted("related") or (wanted("course") and job.ended) else None
    if wanted("job"):
        values |= await _standing(request, caller, job, entries, now)
    if wanted("course"):
        drawing = timeline.draw(job, entries, now, None if related is None else related.cleanup)
        values |= {"drawing": drawing, "totals": timeline.totals(job, now), "steps": job_words.steps(entries, job)}
    if wanted("lines"):
        values["log"] = await _log(plane, job, entries, request.query_params.get("after") if asked else None)
    if wanted("related"):
        values |= {"related": related, "group": await _group(plane, caller, job)}
    if wanted("commands"):
        values["commands"] = job_actions.as_commands(plane, caller, job, shown["payload"], _server(request))
    if not asked:
        values["made_for"] = await _made_for(plane, caller, job)
    return await render(request, caller, "job.html", job=job, **values)


async def _standing(
    request: Request, caller: Caller, job: Job, entries: Sequence[Entry], now: datetime
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


@dataclass(frozen=True, slots=True)
class Purpose:
    """Shown by its name, or where it has none by its id."""

    what: str
    path: str
    id: UUID | str
    name: str = ""


async def _related(plane: Plane, caller: Caller, job: Job) -> reading.Related:
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


async def _group(plane: Plane, caller: Caller, job: Job) -> Group | None:
    if job.group_id is None:
        return None
    row = await plane.core.db.fetchrow(grouping.SQL["group"], job.group_id)
    return grouping.group_of(row) if row is not None and caller.sees(row["owner"]) else None


async def _made_for(plane: Plane, caller: Caller, job: Job) -> list[Purpose]:
    """The export, snapshot or dump whose files it makes or takes away, as long as there is one."""
    if dump_id := job.payload.get("dump_id"):
        dump = await dumps.get(plane.core.db, str(dump_id))
        gone = dump is None or dump.status == "deleting" or not may_dump(plane.config, caller, dump.database)
        return [] if gone else [Purpose("Dump", f"/dumps/{dump_id}", str(dump_id), str(dump_id))]
    if job.kind not in (EXPORT.name, REMOVE.name):
        return []
    if export_id := job.payload.get("export_id"):
        export = await plain.get(plane.core.db, UUID(export_id))
        if export is None or not caller.sees(export.owner):
            return []
        return [Purpose("Export", f"/exports/{export.id}", export.id)]
    snapshot_id = job.payload.get("snapshot_id")
    snapshot = None if snapshot_id is None else await snapshot_states.get(plane.core.db, UUID(snapshot_id))
    if snapshot is None or not caller.sees(snapshot.owner):
        return []
    mapping = f"/mappings/{snapshot.mapping_id}?version={snapshot.mapping_version}"
    return [
        Purpose("Snapshot", f"/snapshots/{snapshot.id}", snapshot.id, snapshot.name),
        Purpose("Mapping", mapping, snapshot.mapping_id),
    ]


# The log


@dataclass(frozen=True, slots=True)
class Log:
    """`nothing` says why there is none and never will be: the job has ended."""

    parts: Sequence[job_log.Part]
    after: str | None
    cut: bool
    nothing: str | None = None


async def _log(plane: Plane, job: Job, entries: Sequence[Entry], after: str | None = None) -> Log:
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
    check_part(plane, caller, job)
    reason = await field(request, "reason") or "from the dashboard"
    verdict = (await plane.core.cancel([job.id], actor=caller.actor, reason=reason))[job.id]
    if verdict == "finished":
        raise ApiError(409, "already_finished", "The job had ended already; nothing was cancelled.")
    if verdict == "cleanup":
        raise ApiError(409, "cleanup_not_cancellable", "A cleanup is not cancelled; it ends by itself.")
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
