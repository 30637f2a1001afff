"""Who asks, and whether this route is theirs. Runs before the body is read: a stranger learns nothing from a 422."""

import hmac
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection, Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from paddock.api import signin
from paddock.api.access import NOBODY, OPEN, Roles
from paddock.api.errors import ApiError
from paddock.api.tokens import Caller, Tokens


async def authorize(connection: HTTPConnection, roles: Roles, method: str, path: str) -> Caller | None:
    """The caller, if their role is among those of the route `path` (a template); None where no token is needed."""
    if roles == OPEN:
        return None
    tokens: Tokens = connection.app.state.plane.tokens
    caller = await authenticate(connection, tokens)
    if caller.role not in roles:
        raise ApiError(
            403, "not_allowed", f"A token of role '{caller.role}' may not do this.", details={"roles": sorted(roles)}
        )
    if caller.csrf is not None:
        check_browser(connection, caller, method, path)
    return caller


def refusing(route: Route) -> Route:
    """What stands in the place of a route that was declared without roles: it answers nobody."""
    return Route(route.path, _Refusal(route.path), methods=route.methods, include_in_schema=False)


class _Refusal:
    """An ASGI app, so that it refuses whatever method the route would have taken."""

    def __init__(self, path: str) -> None:
        self.path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await authorize(HTTPConnection(scope), NOBODY, scope["method"], self.path)
        raise AssertionError("nobody is among no roles")


async def authenticate(connection: HTTPConnection, tokens: Tokens) -> Caller:
    header = connection.headers.get("authorization")
    if header is not None:
        scheme, _, secret = header.partition(" ")
        caller = await tokens.by_secret(secret.strip()) if scheme.lower() == "bearer" else None
    else:
        session_id = signin.session_id(connection)
        caller = await tokens.by_web_session(session_id) if session_id else None
    if caller is None:
        raise unauthenticated(sent=header is not None)
    return caller


def check_browser(connection: HTTPConnection, caller: Caller, method: str, path: str) -> None:
    """A cookie comes along with whatever a page makes the browser send."""
    if method not in signin.SAFE_METHODS:
        signin.check_change(connection, caller, connection.headers.get(signin.CSRF_HEADER))
    elif path == "/api/stream":
        signin.check_same_origin(connection)


def unauthenticated(*, sent: bool) -> ApiError:
    if sent:
        code, message = "bad_token", "The token is unknown, revoked or expired."
    else:
        code, message = "no_token", "This needs a token."
    return ApiError(
        401,
        code,
        message,
        hint="Send 'Authorization: Bearer pdk_...'; `paddock tokens create` makes one.",
        headers={"WWW-Authenticate": "Bearer"},
    )


def same_secret(given: str | None, wanted: str) -> bool:
    scheme, _, secret = (given or "").partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(secret.strip().encode(), wanted.encode())


async def _caller(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


Asking = Annotated[Caller, Depends(_caller)]
