"""Looking at jobs: lists, counts, one job, its timeline and its log."""

from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.around import around
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.guard import guarded_router
from paddock.api.ids import optional_id
from paddock.api.job_json import EXAMPLE, WHOLE_EXAMPLE, BriefJob, WholeJob, brief_job_json, job_json
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, split
from paddock.api.plane import ThePlane
from paddock.api.services.jobs import visible_job
from paddock.jobs import logs, reading
from paddock.jobs.filtering import Filter
from paddock.jobs.waiting import until_ended

LONGEST_WAIT = 30.0

router = guarded_router("jobs", PEOPLE)

Text = Annotated[str | None, Query(min_length=1, max_length=500)]
Time = Annotated[AwareDatetime | None, Query(examples=["2026-11-15T00:00:00Z"])]

AROUND_EXAMPLE = {
    "sentence": "Its run of 'orders' is held: 10 GiB wait for hooks, since 4 min. It fetches on as soon as less waits.",
    "what_to_do": ["`paddock jobs list --kind run_hooks` shows whether hooks run: start workers that offer them."],
}
ENTRY_EXAMPLE = {
    "at": "2026-11-15T09:30:00.012000Z",
    "event": "claimed",
    "from": "pending",
    "to": "claimed",
    "attempt_id": "6b1f3f0e-6f2b-4d0c-9c59-9f4f6a2f6f10",
    "worker": "worker-1",
    "actor": None,
    "reason": None,
    "claimed_at": None,
    "error": None,
    "count": 1,
    "until": None,
}


@router.get(
    "/api/jobs",
    summary="List jobs, newest first",
    responses=documented_page(EXAMPLE, BriefJob, searched_back_to=None),
)
async def list_jobs(
    plane: ThePlane,
    caller: Asking,
    kind: Text = None,
    status: Annotated[list[str] | None, Query(description="One or several, also with commas.", max_length=20)] = None,
    owner: Text = None,
    group: Text = None,
    worker: Text = None,
    tag: Text = None,
    error_code: Text = None,
    since: Time = None,
    until: Time = None,
    q: Annotated[
        str | None,
        Query(min_length=1, max_length=500, description="Id prefix, or text of what it is about or of its error."),
    ] = None,
    schedule: Text = None,
    retrying: Annotated[bool, Query(description="Only those that failed and wait for the next try.")] = False,
    housekeeping: Annotated[bool, Query(description="With the control plane's own upkeep.")] = False,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    if owner is not None and not caller.sees(owner):
        return page([], None, searched_back_to=None)
    asked = Filter(
        kind=kind,
        status=split(status),
        owner=caller.scope or owner,
        group=optional_id(group, "group"),
        worker=worker,
        tag=tag,
        error_code=error_code,
        since=since,
        until=until,
        q=q,
        schedule=schedule,
        retrying=retrying,
        include_housekeeping=housekeeping or kind is not None or schedule is not None,
    )
    found = await reading.page(plane.core.db, asked, limit=limit, cursor=cursor)
    return page([brief_job_json(job) for job in found.jobs], found.next_cursor, searched_back_to=found.searched_back_to)


@router.get(
    "/api/jobs/counts",
    summary="How many jobs, by kind and status",
    responses=documented(
        {
            "by_kind": {"probe": {"pending": 3, "claimed": 1, "completed": 120}},
            "ended_since": "2026-11-14T09:30:00Z",
            "sampled_at": "2026-11-15T09:30:00Z",
            "complete": True,
        }
    ),
)
async def count_jobs(plane: ThePlane, caller: Asking) -> Response:
    found = await reading.counts(plane.core.db, caller.scope)
    return answer(
        {
            "by_kind": found.by_kind,
            "ended_since": found.ended_since,
            "sampled_at": found.sampled_at,
            "complete": found.complete,
        }
    )


@router.get(
    "/api/jobs/{job_id}",
    summary="One job; with wait, once it has ended",
    responses=documented(WHOLE_EXAMPLE, WholeJob),
)
async def get_job(
    job_id: str,
    plane: ThePlane,
    caller: Asking,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait for its end.")] = 0,
) -> Response:
    job = await visible_job(plane, caller, job_id)
    if wait and not job.ended:
        job = await until_ended(plane.core, job, wait)
    return answer(job_json(job, plane.core.kinds))


@router.get(
    "/api/jobs/{job_id}/timeline",
    summary="What happened to a job, oldest first",
    responses=documented_page(ENTRY_EXAMPLE),
)
async def get_timeline(job_id: str, plane: ThePlane, caller: Asking) -> Response:
    job = await visible_job(plane, caller, job_id)
    return page(await reading.timeline(plane.core.db, job.id), None)


@router.get(
    "/api/jobs/{job_id}/around",
    summary="What is to be said of the whole that a job is part of",
    responses=documented_page(AROUND_EXAMPLE),
)
async def get_around(job_id: str, plane: ThePlane, caller: Asking) -> Response:
    job = await visible_job(plane, caller, job_id)
    return page(await around(plane, caller, job), None)


@router.get(
    "/api/jobs/{job_id}/logs",
    summary="The tail of what the handler logged",
    responses=documented(
        {
            "chunks": [
                {
                    "at": "2026-11-15T09:30:01Z",
                    "attempt_id": "6b1f3f0e-6f2b-4d0c-9c59-9f4f6a2f6f10",
                    "seq": 1,
                    "lines": "info turn 1 of 3\n",
                    "dropped_bytes": 0,
                }
            ],
            "after": "AAYl...",
            "cut": False,
            "dropped_bytes": 0,
        }
    ),
)
async def get_logs(
    job_id: str,
    plane: ThePlane,
    caller: Asking,
    after: Annotated[
        str | None, Query(max_length=200, description="`after` of the answer before: what came since.")
    ] = None,
    limit_bytes: Annotated[int, Query(ge=1, le=logs.KEPT_BYTES, alias="bytes")] = logs.KEPT_BYTES,
) -> Response:
    job = await visible_job(plane, caller, job_id)
    tail = await logs.tail(plane.core.db, job.id, after, limit_bytes)
    return answer({"chunks": tail.chunks, "after": tail.after, "cut": tail.cut, "dropped_bytes": tail.dropped_bytes})
