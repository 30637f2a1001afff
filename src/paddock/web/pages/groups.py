"""Jobs that belong together, counted; the newest groups first."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.keyset import read_place
from paddock.api.pagination import write_cursor
from paddock.api.tokens import Caller
from paddock.jobs import grouping, reading
from paddock.jobs.filtering import Filter
from paddock.web.frame import page, plane_of, render

PAGE_LENGTH = 50


def routes() -> list[Route]:
    return [page("/groups", show), page("/groups/{group_id}", show_one)]


async def show(request: Request, caller: Caller) -> Response:
    before = read_place(request.query_params.get("cursor") or None)
    found = await grouping.page(plane_of(request).core.db, caller.scope, before=before, limit=PAGE_LENGTH)
    next_cursor = write_cursor(found[-1].id) if len(found) == PAGE_LENGTH else None
    return await render(request, caller, "groups.html", groups=found, next_cursor=next_cursor)


async def show_one(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    row = await db.fetchrow(grouping.SQL["group"], path_id(request.path_params["group_id"], "group"))
    if row is None or not caller.sees(row["owner"]):
        raise not_found("group")
    group = grouping.group_of(row)
    jobs = await reading.page(db, Filter(group=group.id, owner=caller.scope), limit=PAGE_LENGTH)
    return await render(request, caller, "group.html", group=group, jobs=jobs.jobs, more=jobs.next_cursor is not None)
