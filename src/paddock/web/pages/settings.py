"""Drain mode, settings of the whole installation, and for admins the tokens."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import global_config
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.tokens import Caller
from paddock.web import standing
from paddock.web.frame import back, field, form, page, plane_of, render

MOST_TOKENS = 200


def routes() -> list[Route]:
    return [
        page("/settings", show),
        form("/settings/drain", drain),
        form("/settings/config", change),
        form("/settings/tokens/{token_id}/revoke", revoke),
    ]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    tokens = await plane.tokens.page(None, MOST_TOKENS) if caller.role == "admin" else None
    config = await global_config.read(plane.core.db)
    return await render(request, caller, "settings.html", config=config, tokens=tokens)


async def drain(request: Request, caller: Caller) -> Response:
    enabled = await field(request, "enabled") == "on"
    reason = await field(request, "reason") or None
    await plane_of(request).core.drain(enabled, actor=caller.actor, reason=reason)
    standing.forget(request)
    said = "New work is refused; what is queued goes on." if enabled else "New work is taken again."
    return back(request, "/settings", said)


async def change(request: Request, caller: Caller) -> Response:
    """One setting at a time; an empty text is the default again."""
    name, value = await field(request, "name"), await field(request, "value")
    reason = await field(request, "reason") or None
    await global_config.write(plane_of(request).core.db, {name: value or None}, actor=caller.actor, reason=reason)
    standing.forget(request)
    return back(request, "/settings", f"{name} is changed." if value else f"{name} has its default again.")


async def revoke(request: Request, caller: Caller) -> Response:
    revoked = await plane_of(request).tokens.revoke(
        path_id(request.path_params["token_id"], "token"),
        actor=caller.actor,
        reason=await field(request, "reason") or None,
    )
    if revoked is None:
        raise not_found("token")
    return back(request, "/settings", f"The token {revoked['name']} works no more.")
