"""The app, assembled: FastAPI for people, bare Starlette for workers, one edge around both."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any

import structlog
from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import paddock
from paddock import capability
from paddock.api import errors, health, internal, stream
from paddock.api.access import NOBODY, OPEN, allowed, open_route, roles_of, table_of
from paddock.api.auth import refusing
from paddock.api.edge import Edge
from paddock.api.hub import Hub
from paddock.api.pagination import encode
from paddock.api.plane import ControlPlane
from paddock.api.routes import (
    changing,
    events,
    figures,
    groups,
    jobs,
    kinds,
    ops,
    schedules,
    searching,
    submitting,
    tokens,
    webhooks,
    workers,
)
from paddock.api.tokens import Tokens
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.metrics import Metrics

DESCRIPTION = """Runs data jobs that must neither be lost nor run twice.

Answers are `{"data": ...}`, lists add `next_cursor`; errors are `{"error": {"code", "message", "details", "hint"}}`.
Every answer carries `X-Request-Id`. Send `Idempotency-Key` with a POST that makes work and repeat it without fear.
"""

log = structlog.get_logger()

# In the order they are tried: the most asked for first, `/api/jobs/counts` before `/api/jobs/{job_id}`.
ROUTERS: Sequence[APIRouter] = (
    submitting.router,
    jobs.router,
    changing.router,
    stream.router,
    kinds.router,
    workers.router,
    schedules.router,
    events.router,
    webhooks.router,
    groups.router,
    figures.router,
    searching.router,
    ops.router,
    tokens.router,
    health.router,
)


def create_app(
    core: Core,
    config: Config,
    *,
    host: str | None = None,
    metrics: Metrics | None = None,
    routers: Iterable[APIRouter] = (),
    routes: Iterable[BaseRoute] = (),
    lost: Callable[[Request, int], Awaitable[Response]] | None = None,
) -> FastAPI:
    """`host` is the address it will listen on: on loopback it answers to known Host names only.
    `routers` come after the capabilities', `routes` are the dashboard's; those of them that say no roles answer nobody.
    `lost` answers a browser at an address where there is nothing, with the status; programs get the error as JSON."""
    plane = make_plane(core, config, metrics)
    every = public_routes(routers, routes)
    if config.internal_port is None:
        every = [*_answering(internal_routes()), *every]
    if config.metrics_port is None:
        every = [*every, *health.metrics_router.routes]
    app = _bare_app(plane, host, every)
    app.state.lost = lost
    return app


def internal_routes() -> list[BaseRoute]:
    """The workers' API, and what capabilities have beside it."""
    found: list[BaseRoute] = [*internal.routes()]
    for owner, routes in capability.each("internal_routes"):
        with capability.leaving_out(owner):
            found += routes()
    return found


def public_routes(routers: Iterable[APIRouter], routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """All but the workers' API and the metrics, which may have ports of their own; in the order they are tried."""
    # Not include_router: it matches every request twice, and these routes need nothing of what it adds.
    declared = [*(route for router in (*ROUTERS, *capability.routers(), *routers) for route in router.routes), *routes]
    return [*_answering(declared), open_route("/openapi.json", _openapi)]


def _answering(routes: Iterable[BaseRoute]) -> Iterator[BaseRoute]:
    """The routes as the app has them: one without roles answers nobody."""
    for route in routes:
        if roles_of(route) != NOBODY:
            yield route
            continue
        log.error("route_without_roles", route=str(getattr(route, "path", route)), doing="it answers nobody")
        if isinstance(route, Route):
            yield refusing(route)
        # Whatever else there is (a mount, a WebSocket) has no place in the table, and so none in the app.


def create_internal_app(app: FastAPI, host: str | None = None) -> FastAPI:
    """The workers' API alone, for `config.internal_port`."""
    plane: ControlPlane = app.state.plane
    return _bare_app(plane, host, [*_answering(internal_routes()), *health.router.routes])


def create_metrics_app(app: FastAPI, host: str | None = None) -> FastAPI:
    """`/metrics` alone, for `config.metrics_port`."""
    return _bare_app(app.state.plane, host, [*health.metrics_router.routes, *health.router.routes])


def make_plane(core: Core, config: Config, metrics: Metrics | None = None) -> ControlPlane:
    metrics = metrics or core.metrics
    return ControlPlane(core, config, Tokens(core.db), metrics, Hub(core, metrics, config.streams_per_token))


def close(app: FastAPI) -> None:
    """Answers whoever waits: long polls, waits for a job, streams. Before the server waits for its connections."""
    plane: ControlPlane = app.state.plane
    plane.closing.set()
    plane.core.claims.close()
    plane.hub.close()


def _bare_app(plane: ControlPlane, host: str | None, routes: Sequence[BaseRoute]) -> FastAPI:
    app = FastAPI(
        title="Paddock",
        version=paddock.__version__,
        description=DESCRIPTION,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        # FastAPI's own spans and logs would carry exceptions as they are, secrets included; `edge` has ours.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.plane = plane
    app.router.routes.extend(routes)
    app.state.access = table_of(app.routes)
    app.add_middleware(Edge, config=plane.config, metrics=plane.metrics, host=host)
    errors.add_handlers(app)
    return app


async def _openapi(request: Request) -> Response:
    app: FastAPI = request.app
    return Response(encode(openapi(app)), media_type="application/json")


def openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with how to sign in: a token or the dashboard's cookie, except on routes that are open."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = app.openapi()
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["token"] = {"type": "http", "scheme": "bearer", "description": "`pdk_...`"}
    table = table_of(app.routes)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if allowed(table, method.upper(), path) != OPEN:
                operation["security"] = [{"token": []}]
    return document
