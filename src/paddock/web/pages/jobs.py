"""The list of jobs, newest first, narrowed by what the address says, with the columns a person chose.

Rows stay where they are: a region is asked for with the ids on screen (`rows`) and answered with those jobs as they are
now, whether they still match or not. What is new is only counted (`fresh`), until somebody wants to see it.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any
from uuid import UUID

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.kinds_seen import may_see_kind
from paddock.api.signin import is_secure
from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.jobs.bulk import BULK
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.model import STATUSES, Job, JobId
from paddock.web import job_columns, job_filters
from paddock.web.frame import back, field, form, page, plane_of, regions, render, templates, url_of
from paddock.web.job_filters import JobListRequest, here, path_back
from paddock.web.job_rows import Rows
from paddock.web.pages import jobs_acting, jobs_download

PAGE_LENGTH = 50
MOST_FRESH = 99
# Less than the API's: what is found is drawn too, and both together are to take less than 50 ms.
BUDGET = timedelta(milliseconds=20)
ROWS = Rows()
# What of a job jobs.js looks at to tell whether a filter finds it.
LOOKED_AT: Mapping[str, Sequence[str]] = {
    "kind": ["kind"],
    "status": ["status"],
    "owner": ["owner"],
    "group": ["group_id"],
    "worker": ["claimed_by"],
    "tag": ["tags"],
    "error_code": ["error_code"],
    "schedule": ["schedule"],
    "retrying": ["attempt_count"],
    "since": ["created_at"],
    "until": ["created_at"],
    "q": ["about", "error_code", "error_message"],
}


def routes() -> list[Route]:
    # Before those of one job, whose id could be any word.
    return [
        page("/jobs", show, PEOPLE),
        form("/jobs/columns", choose, PEOPLE),
        *jobs_download.routes(),
        *jobs_acting.routes(),
    ]


async def show(request: Request, caller: Caller) -> Response:
    asked = job_filters.read(request.query_params.multi_items(), caller, datetime.now(UTC))
    wanted = regions(request)
    columns = job_columns.chosen(request, caller)
    cursor = request.query_params.get("cursor") or None
    if not wanted and "" in request.query_params.values():
        # A form sends its empty fields too; what people copy and save should not have them.
        return RedirectResponse(url_of(request, "/jobs", **asked.query, cursor=cursor), 303)
    found, problem = reading.Page([], None, None), None
    kept = await _jobs_on_screen(request, caller) if wanted else []
    try:
        if asked.filter is not None and not kept and (not wanted or "rows" in wanted):
            found = await reading.page(
                plane_of(request).core.db, asked.filter, limit=PAGE_LENGTH, cursor=cursor, budget=BUDGET
            )
    except Refused as refused:
        problem = refused
    status = 200 if problem is None and asked.filter is not None else 422 if problem is None else problem.status
    return await render(
        request,
        caller,
        "jobs.html",
        status=status,
        asked=asked,
        problem=None if problem is None else problem.message,
        jobs=kept or found.jobs,
        kept=bool(kept),
        fresh=await _fresh(request, asked, kept) if "fresh" in wanted and cursor is None else [],
        bulk=await _bulk(request, caller) if not wanted or "bulk" in wanted else None,
        cursor=cursor,
        next_cursor=found.next_cursor,
        searched_back_to=found.searched_back_to,
        columns=columns,
        all_columns=job_columns.COLUMNS,
        views=job_filters.built_in(caller),
        row=_row(request, asked, columns, fresh=not wanted),
        kinds=_kinds(request, caller, asked),
        statuses=STATUSES,
        counts={} if wanted else await _counts(request, caller, asked),
        here_query=here(asked.query, cursor),
        for_script=_for_script(request, asked, cursor),
    )


async def _counts(request: Request, caller: Caller, asked: JobListRequest) -> Mapping[str, int]:
    """How many there are of each status, where that is known anyway: of all jobs, or of one kind."""
    if asked.filter is None or asked.query.keys() - {"status", "kind"}:
        return {}
    by_kind = (await reading.counts(plane_of(request).core.db, caller.scope)).by_kind
    kinds = [asked.filter.kind] if asked.filter.kind is not None else list(by_kind)
    found: dict[str, int] = dict.fromkeys(STATUSES, 0)
    for kind in kinds:
        for status, n in by_kind.get(kind, {}).items():
            found[status] = found.get(status, 0) + n
    return found


def _row(
    request: Request, asked: JobListRequest, columns: Sequence[job_columns.JobColumn], *, fresh: bool
) -> Callable[[Job], Markup]:
    add = cache(lambda name, value: url_of(request, "/jobs", **asked.plus(name, value)))
    keys = [column.key for column in columns]
    parts: Any = templates().globals["ui"]

    def draw(job: Job) -> Markup:
        row: Markup = parts.job_row(job, columns, keys, add, job_columns)
        return row

    # An address below the root, with the filters that each link of a row adds to.
    look = (url_of(request, "/jobs", **asked.query), *keys)
    return draw if fresh else lambda job: ROWS.drawn(job, look, draw)


async def _jobs_on_screen(request: Request, caller: Caller) -> list[Job]:
    """The jobs on screen, as they are now."""
    ids = _ids(request.query_params.get("rows", ""))
    return (
        [job for job in await reading.briefs(plane_of(request).core.db, ids) if caller.sees(job.owner)] if ids else []
    )


def _ids(text: str) -> list[JobId]:
    try:
        return [JobId(UUID(part)) for part in text.split(",", PAGE_LENGTH)[:PAGE_LENGTH] if part]
    except ValueError:
        return []


async def _fresh(request: Request, asked: JobListRequest, kept: Sequence[Job]) -> list[JobId]:
    """What matches now and is not on screen, unless it is older than all that is."""
    if asked.filter is None or not kept:
        return []
    full = len(kept) == PAGE_LENGTH
    newer = await reading.newer(
        plane_of(request).core.db,
        asked.filter,
        after=kept[-1].id if full else None,
        limit=PAGE_LENGTH + MOST_FRESH + 1,
        budget=BUDGET,
    )
    shown = {job.id for job in kept}
    return [id for id in newer if id not in shown][: MOST_FRESH + 1]


async def _bulk(request: Request, caller: Caller) -> Job | None:
    """The action on all that match which was started from here."""
    ids = _ids(request.query_params.get("bulk", ""))[:1]
    found = await reading.jobs(plane_of(request).core.db, ids) if ids else []
    return next((job for job in found if job.kind == BULK.name and caller.sees(job.owner)), None)


def _kinds(request: Request, caller: Caller, asked: JobListRequest) -> list[str]:
    plane = plane_of(request)
    known = [kind.name for kind in plane.core.kinds if not kind.housekeeping]
    own = {name for name in known if may_see_kind(plane.config, caller, name)}
    # A job may be of a kind that this replica does not know.
    return sorted(own | {str(asked.query["kind"])} if "kind" in asked.query else own)


def _for_script(request: Request, asked: JobListRequest, cursor: str | None) -> dict[str, Any]:
    """What jobs.js tells with whether a job it hears of belongs on this list."""
    filter: Filter | None = asked.filter
    if filter is None:
        return {"query": "", "first": False, "filter": {}, "fields": "id"}
    narrowing = filter.to_json() | {"status": list(filter.statuses), "q": filter.text, "id_prefix": filter.id_prefix}
    set_ones = [name for name, value in narrowing.items() if value is not None]
    fields = {"id", *(field for name in set_ones for field in LOOKED_AT.get(name, ()))}
    first = cursor is None
    return {"query": here(asked.query, None), "first": first, "filter": narrowing, "fields": ",".join(sorted(fields))}


async def choose(request: Request, caller: Caller) -> Response:
    keys = [key for key in (await request.form()).getlist("column") if isinstance(key, str)]
    response = back(request, path_back(await field(request, "from")))
    if await field(request, "usual"):
        response.delete_cookie(job_columns.COOKIE)
        return response
    picked = job_columns.picked(keys)
    if not picked:
        raise ApiError(422, "no_column", "No column was chosen.", hint="Choose at least one.")
    response.set_cookie(
        job_columns.COOKIE,
        ".".join(column.key for column in picked),
        max_age=job_columns.KEPT_SECONDS,
        httponly=True,
        samesite="lax",
        secure=is_secure(request),
    )
    return response
