"""Signing in with a token or a one-time link, and out again."""

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from paddock.api import signin
from paddock.api.errors import ApiError
from paddock.api.tokens import Caller
from paddock.web.frame import field, form, plane_of, problem, render, url_of


def routes() -> list[Route]:
    return [
        Route("/sign-in", show, methods=["GET"]),
        Route("/sign-in", sign_in, methods=["POST"]),
        form("/sign-out", sign_out),
    ]


async def show(request: Request) -> Response:
    return await render(request, None, "sign_in.html", next=own_path(request.query_params.get("next")), problem=None)


async def sign_in(request: Request) -> Response:
    try:
        signin.check_same_origin(request)
    except ApiError as error:
        return await problem(request, None, error.status_code, error.message, error.hint)
    tokens = plane_of(request).tokens
    code, token = await field(request, "code"), await field(request, "token")
    session = await signin.exchange_link(tokens, code) if code else await signin.sign_in(tokens, token)
    target = own_path(await field(request, "next"))
    if session is None:
        refused = (
            "This link was used already or is older than five minutes." if code else "This token is not known here."
        )
        return await render(request, None, "sign_in.html", status=401, next=target, problem=refused)
    path, _, query = target.partition("?")
    response = RedirectResponse(url_of(request, path) + (f"?{query}" if query else ""), 303)
    signin.set_cookie(response, request, session)
    return response


async def sign_out(request: Request, caller: Caller) -> Response:
    session_id = signin.session_id(request)
    if session_id is not None:
        await signin.sign_out(plane_of(request).tokens, session_id)
    response = RedirectResponse(url_of(request, "/sign-in"), 303)
    signin.clear_cookie(response, request)
    return response


def own_path(path: str | None) -> str:
    """Where to go after signing in: on this server only. '//other' and '/\\other' lead elsewhere."""
    if path is None or not path.startswith("/") or path[1:2] in ("/", "\\"):
        return "/"
    return path
