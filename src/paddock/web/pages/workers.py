"""The sessions of workers, and the switch that lets one finish and claim nothing new."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.jobs.model import SessionId
from paddock.web.frame import back, field, form, page, plane_of, render


def routes() -> list[Route]:
    return [page("/workers", show), form("/workers/{session}/quiet", quiet)]


async def show(request: Request, caller: Caller) -> Response:
    workers = await reading.workers(plane_of(request).core.db)
    return await render(request, caller, "workers.html", workers=workers)


async def quiet(request: Request, caller: Caller) -> Response:
    session = SessionId(path_id(request.path_params["session"], "session"))
    wanted = await field(request, "quiet") != "off"
    if not await plane_of(request).core.quiet(session, actor=caller.actor, quiet=wanted):
        raise not_found("session")
    said = "The worker ends what it runs and claims nothing new." if wanted else "The worker claims again."
    return back(request, "/workers", said)
