"""Who changed what, and why; newest first."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import auditing
from paddock.api.keyset import next_cursor, read_place
from paddock.api.tokens import Caller
from paddock.web.frame import page, plane_of, render

PAGE_LENGTH = 50


def routes() -> list[Route]:
    return [page("/audit", show)]


async def show(request: Request, caller: Caller) -> Response:
    asked = {name: request.query_params.get(name) or None for name in ("actor", "action", "subject")}
    found = await auditing.page(
        plane_of(request).core.db,
        before=read_place(request.query_params.get("cursor") or None),
        since=None,
        limit=PAGE_LENGTH,
        **asked,
    )
    return await render(
        request, caller, "audit.html", entries_found=found, asked=asked, next_cursor=next_cursor(found, PAGE_LENGTH)
    )
