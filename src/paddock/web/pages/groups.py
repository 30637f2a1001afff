"""Jobs that belong together: open groups first, then those that ended last; one group with its jobs, failed ones first."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.keyset import cursor_after
from paddock.api.pagination import read_cursor, write_cursor
from paddock.api.services.changing import act_on_matching
from paddock.api.tokens import Caller
from paddock.db.pool import Database
from paddock.jobs import grouping, reading
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Group, Job
from paddock.log import masked
from paddock.web.frame import back, field, form, page, plane_of, render
from paddock.web.status_shares import StatusShare, status_shares

PAGE_LENGTH = 50
FIRST_OPEN = 20
MOST_JOBS = 50
# Fewer ends than this foretell nothing.
FORETOLD_FROM = 5


def routes() -> list[Route]:
    return [
        page("/groups", show, PEOPLE),
        page("/groups/{group_id}", show_one, PEOPLE),
        form("/groups/{group_id}/retry", retry, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    """The first page begins with the open ones; the pages after it are either open or ended ones."""
    db, asked = plane_of(request).core.db, request.query_params
    cursor, only_open = asked.get("cursor") or None, asked.get("state") == "open"
    found: list[Group] = []
    more_open = next_open = next_ended = None
    if only_open:
        before: UUID | None = None if cursor is None else read_cursor(cursor, UUID)
        opened = await grouping.open_page(db, caller.scope, before=before, limit=PAGE_LENGTH)
        next_open = cursor_after(opened, PAGE_LENGTH)
    else:
        opened = [] if cursor else await grouping.open_page(db, caller.scope, limit=FIRST_OPEN + 1)
        more_open = len(opened) > FIRST_OPEN
        opened = opened[:FIRST_OPEN]
        place = None if cursor is None else read_cursor(cursor, tuple[datetime, UUID])
        found = await grouping.ended_page(db, caller.scope, before=place, limit=PAGE_LENGTH)
        next_ended = write_cursor((found[-1].ended_at, found[-1].id)) if len(found) == PAGE_LENGTH else None
    return await render(
        request,
        caller,
        "groups.html",
        opened=opened,
        ended=found,
        parts={group.id: parts_of(group) for group in (*opened, *found)},
        only_open=only_open,
        first=cursor is None,
        more_open=more_open,
        next_open=next_open,
        next_ended=next_ended,
    )


async def show_one(request: Request, caller: Caller) -> Response:
    core = plane_of(request).core
    group = await _group(request, caller)
    kind = core.kinds.get(group.kind)
    live = await grouping.live_counts(core.db, group.id) if group.open else {}
    jobs, more = await _jobs(core.db, group, caller)
    return await render(
        request,
        caller,
        "group.html",
        group=group,
        data=masked(group.data),
        parts=parts_of(group, live),
        jobs=jobs,
        more=more,
        has_hook=kind is not None and kind.on_group_end is not None,
        left=time_left(group),
    )


async def retry(request: Request, caller: Caller) -> Response:
    """A bulk job, like `POST /api/jobs/retry` with this group as its filter."""
    group = await _group(request, caller)
    job = await act_on_matching(
        plane_of(request),
        caller,
        "retry",
        Filter(group=group.id, status="failed"),
        all_jobs=False,
        reason=await field(request, "reason") or None,
        idempotency=None,
    )
    return back(request, f"/jobs/{job.id}", "This job retries the failed ones; each becomes a new job of its group.")


async def _group(request: Request, caller: Caller) -> Group:
    group = await grouping.get(plane_of(request).core.db, path_id(request.path_params["group_id"], "group"))
    if group is None or not caller.sees(group.owner):
        raise not_found("group")
    return group


async def _jobs(db: Database, group: Group, caller: Caller) -> tuple[list[Job], bool]:
    """Failed ones first, then what runs, what waits, and the rest; newest first in each."""
    found: list[Job] = []
    for n, statuses in (
        (group.failed, ("failed",)),
        (group.open, ("claimed", "submitted")),
        (group.open, ("pending",)),
        (group.completed + group.cancelled, ("completed", "cancelled")),
    ):
        if n and len(found) < MOST_JOBS:
            asked = Filter(group=group.id, owner=caller.scope, status=statuses, include_cleanups=False)
            found += (await reading.page(db, asked, limit=MOST_JOBS - len(found))).jobs
    return found, group.total > len(found)


def parts_of(group: Group, live: Mapping[str, int] | None = None) -> Sequence[StatusShare]:
    """Ended ones by how they ended, then the open ones; as far as they were counted by what they wait for."""
    counts = {"completed": group.completed, "failed": group.failed, "cancelled": group.cancelled}
    known = {status: (live or {}).get(status, 0) for status in ("claimed", "submitted")}
    counts |= {**known, "pending": max(0, group.open - sum(known.values()))}
    return status_shares(counts)


def time_left(group: Group, now: datetime | None = None) -> timedelta | None:
    """How long the open ones take if they end as fast as those before."""
    ended = group.total - group.open
    if not group.open or not group.sealed or ended < FORETOLD_FROM:
        return None
    return ((now or datetime.now(UTC)) - group.created_at) / ended * group.open
