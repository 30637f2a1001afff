"""The kinds of jobs, how each is retried and bounded, and the switch that holds one back."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.web.frame import back, field, form, page, plane_of, render


def routes() -> list[Route]:
    return [page("/kinds", show), form("/kinds/{kind}/pause", pause), form("/kinds/{kind}/resume", resume)]


async def show(request: Request, caller: Caller) -> Response:
    seen = await reading.kinds(plane_of(request).core.db)
    shown = [kind for kind in seen if caller.operator or not kind.internal]
    return await render(request, caller, "kinds.html", kinds=sorted(shown, key=lambda kind: (kind.internal, kind.name)))


async def pause(request: Request, caller: Caller) -> Response:
    kind = request.path_params["kind"]
    await plane_of(request).core.pause(kind, actor=caller.actor, reason=await field(request, "reason") or None)
    return back(request, "/kinds", f"{kind} is paused: nothing new of it is claimed.")


async def resume(request: Request, caller: Caller) -> Response:
    kind = request.path_params["kind"]
    await plane_of(request).core.resume(kind, actor=caller.actor, reason=await field(request, "reason") or None)
    return back(request, "/kinds", f"{kind} is claimed again.")
