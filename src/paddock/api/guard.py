"""The route class of the public API: first who asks, then the body, then FastAPI."""

from collections.abc import Callable, Collection, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.dependencies.utils import get_flat_params
from fastapi.params import Query
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from paddock.api.access import NOBODY, OPEN, Roles
from paddock.api.auth import authorize
from paddock.api.bodies import JsonRequest, is_json
from paddock.api.errors import MAX_LISTED, ApiError, invalid
from paddock.api.foreign import is_foreign

# A list that has all of it in one page takes these too: clients ask every list for its pages.
PAGING = frozenset({"limit", "cursor"})


class GuardedRoute(APIRoute):
    # Set by the router that the route is declared with; FastAPI makes the route and knows nothing of them.
    roles: Roles = NOBODY

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        path, takes_body = self.path_format, self.body_field is not None
        known = frozenset(
            field.alias for field in get_flat_params(self.dependant) if isinstance(field.field_info, Query)
        )

        async def guarded(request: Request) -> Response:
            request.state.caller = await authorize(request, self.roles, request.method, path)
            if is_foreign(path):
                scope = _as_json(request.scope) if takes_body else request.scope
                return await handle(JsonRequest(scope, request.receive))
            if takes_body:
                _check_media_type(request)
            if request.scope["query_string"]:
                _check_parameters(request, known)
            return await handle(JsonRequest(request.scope, request.receive))

        return guarded


def _check_parameters(request: Request, known: Collection[str]) -> None:
    """A filter that is misspelt or does not exist would answer with everything, and look as if it had filtered."""
    if unknown := [name for name in request.query_params if name not in known and name not in PAGING]:
        listed = (
            f"There is no such parameter here; there are {', '.join(sorted(known))}." if known else "It takes none."
        )
        raise invalid([{"field": name[:100], "message": listed} for name in dict.fromkeys(unknown[:MAX_LISTED])])


def _check_media_type(request: Request) -> None:
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if has_body and not is_json(request.headers.get("content-type")):
        raise ApiError(
            415, "unsupported_media_type", "The body must be JSON.", hint="Send 'Content-Type: application/json'."
        )


def _as_json(scope: Scope) -> Scope:
    """The clients of those paths send JSON and do not always say so."""
    others = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*others, (b"content-type", b"application/json")]}


class GuardedRouter(APIRouter):
    """Every route that is declared with it has its roles."""

    def __init__(self, tag: str, roles: Roles, route_class: type[GuardedRoute]) -> None:
        super().__init__(route_class=route_class, tags=[tag])
        self.tag = tag
        self.roles = roles
        self.guarded_route_class = route_class

    def add_api_route(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().add_api_route(path, endpoint, **options)
        route = self.routes[-1]
        assert isinstance(route, GuardedRoute), "a route with roles must be one that checks them"
        route.roles = self.roles

    def for_roles(self, roles: Roles) -> "GuardedRouter":
        """The same list of routes, for one that is not for the router's usual roles:

        @router.for_roles(ADMINS).delete("/api/things/{thing_id}", summary="Remove a thing")
        """
        other = GuardedRouter(self.tag, roles, self.guarded_route_class)
        other.routes = self.routes
        return other


class OpenRoute(APIRoute):
    """A route of the API that needs no token, and so is not guarded."""

    roles: Roles = OPEN


def guarded_router(tag: str, roles: Roles, route_class: type[GuardedRoute] = GuardedRoute) -> GuardedRouter:
    return GuardedRouter(tag, roles, route_class)


def open_router(tag: str) -> APIRouter:
    return APIRouter(route_class=OpenRoute, tags=[tag])
