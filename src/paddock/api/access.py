"""Who may do what. A route carries its roles where it is declared, and the table role x route is read from the routes.

- The public API: `guarded_router(tag, roles)`, and `open_router(tag)` for what needs no token.
- Pages of the dashboard: `page(path, show, roles)` and `form(path, change, roles)`; `open_route` for what needs no token.
- The workers' API: `paddock.api.internal`.

A route without roles answers nobody: `create_app` puts a refusal in its place. Owner scoping comes on top of roles: what
an analyst reaches through a route is only their own (`Caller.sees`).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Literal

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

Role = Literal["worker", "analyst", "ops", "admin"]
ROLES: tuple[Role, ...] = ("worker", "analyst", "ops", "admin")

Roles = frozenset[str]
# Needs no token: the route itself decides what it shows (/metrics may ask for its scrape token).
OPEN: Roles = frozenset({"anyone"})
WORKERS: Roles = frozenset({"worker"})
PEOPLE: Roles = frozenset({"analyst", "ops", "admin"})
OPERATORS: Roles = frozenset({"ops", "admin"})
ADMINS: Roles = frozenset({"admin"})
NOBODY: Roles = frozenset()

# "METHOD path" -> roles, in the order in which the routes are tried.
Table = Mapping[str, Roles]


class RouteWithRoles(Route):
    """A plain route that says its roles and leaves it to its endpoint to check them. So it is made only together with an
    endpoint that does: by `page` and `form`, by the workers' API, and by `open_route`, where there is nothing to check."""

    def __init__(self, path: str, endpoint: Callable[..., Any], roles: Roles, *, method: str) -> None:
        super().__init__(path, endpoint, methods=[method])
        self.roles = roles


def open_route(path: str, answer: Callable[[Request], Awaitable[Response]], *, method: str = "GET") -> Route:
    """A route that needs no token."""
    return RouteWithRoles(path, answer, OPEN, method=method)


def roles_of(route: BaseRoute) -> Roles:
    """The roles that a route was declared with."""
    roles: Roles = getattr(route, "roles", NOBODY)
    return roles


def table_of(routes: Iterable[BaseRoute]) -> Table:
    """Where two routes have one method and path, the first one answers, and so its roles count."""
    table: dict[str, Roles] = {}
    for route in routes:
        if isinstance(route, Route):
            # The API's routes are named as in its document: without what a part of the path may hold.
            path = route.path_format if isinstance(route, APIRoute) else route.path
            for method in sorted((route.methods or set()) - {"HEAD"}):
                table.setdefault(f"{method} {path}", roles_of(route))
    return table


def allowed(table: Table, method: str, path: str) -> Roles:
    """The roles that may use the route `path` (a template). Who may read may ask for the headers alone."""
    method = "GET" if method == "HEAD" else method
    return table.get(f"{method} {path}", NOBODY)
