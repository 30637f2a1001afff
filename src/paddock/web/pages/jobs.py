"""The list of jobs, newest first, narrowed by what the address says."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from paddock.jobs.model import STATUSES
from paddock.web.frame import page, plane_of, render

PAGE_LENGTH = 50
FIELDS = ("kind", "status", "owner", "worker", "tag", "error_code", "q")


def routes() -> list[Route]:
    return [page("/jobs", show)]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    asked = {name: request.query_params.get(name) or None for name in FIELDS}
    narrowed = {name: value for name, value in asked.items() if value}
    found = await reading.page(
        plane.core.db,
        Filter(**(narrowed | ({} if caller.scope is None else {"owner": caller.scope}))),  # type: ignore[arg-type]
        limit=PAGE_LENGTH,
        cursor=request.query_params.get("cursor"),
    )
    return await render(
        request,
        caller,
        "jobs.html",
        jobs=found.jobs,
        next_cursor=found.next_cursor,
        searched_back_to=found.searched_back_to,
        asked=asked,
        narrowed=narrowed,
        kinds=sorted(kind.name for kind in plane.core.kinds if not kind.housekeeping),
        statuses=STATUSES,
    )
