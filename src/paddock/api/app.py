"""The app, assembled: FastAPI for people, bare Starlette for workers, one edge around both."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any

from fastapi import APIRouter, FastAPI
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

import paddock
from paddock.api import errors, health, internal, stream
from paddock.api.access import OPEN, allowed
from paddock.api.edge import Edge
from paddock.api.hub import Hub
from paddock.api.pagination import encode
from paddock.api.plane import Plane
from paddock.api.routes import (
    changing,
    events,
    figures,
    groups,
    jobs,
    kinds,
    ops,
    schedules,
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
    `routers` are the capabilities', `routes` the dashboard's; each of their routes must stand in `access.ACCESS`.
    `lost` answers a browser at an address where there is nothing, with the status; programs get the error as JSON."""
    plane = make_plane(core, config, metrics)
    app = _bare_app(plane, host)
    app.state.lost = lost
    if config.internal_port is None:
        app.router.routes.extend(internal.routes(plane))
    found = [*ROUTERS, *routers]
    if config.metrics_port is None:
        found.append(health.metrics_router)
    for router in found:
        # Not include_router: it matches every request twice, and these routes need nothing of what it adds.
        app.router.routes.extend(router.routes)
    app.router.routes.extend(routes)
    app.router.routes.append(Route("/openapi.json", _openapi, methods=["GET"], include_in_schema=False))
    return app


def create_internal_app(app: FastAPI, host: str | None = None) -> FastAPI:
    """The workers' API alone, for `config.internal_port`."""
    plane: Plane = app.state.plane
    internal_app = _bare_app(plane, host)
    internal_app.router.routes.extend(internal.routes(plane))
    internal_app.router.routes.extend(health.router.routes)
    return internal_app


def create_metrics_app(app: FastAPI, host: str | None = None) -> FastAPI:
    """`/metrics` alone, for `config.metrics_port`."""
    metrics_app = _bare_app(app.state.plane, host)
    metrics_app.router.routes.extend([*health.metrics_router.routes, *health.router.routes])
    return metrics_app


def make_plane(core: Core, config: Config, metrics: Metrics | None = None) -> Plane:
    metrics = metrics or core.metrics
    return Plane(core, config, Tokens(core.db), metrics, Hub(core, metrics, config.streams_per_token))


def close(app: FastAPI) -> None:
    """Answers whoever waits: long polls, waits for a job, streams. Before the server waits for its connections."""
    plane: Plane = app.state.plane
    plane.closing.set()
    plane.core.claims.close()
    plane.hub.close()


def _bare_app(plane: Plane, host: str | None) -> FastAPI:
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
    app.add_middleware(Edge, config=plane.config, metrics=plane.metrics, host=host)
    errors.add_handlers(app)
    return app


async def _openapi(request: Request) -> Response:
    app: FastAPI = request.app
    return Response(encode(openapi(app)), media_type="application/json")


def openapi(app: FastAPI) -> dict[str, Any]:
    """FastAPI's document, with how to sign in: a token or the dashboard's cookie, except where the table says open."""
    if app.openapi_schema is not None:
        return app.openapi_schema
    document = app.openapi()
    schemes = document.setdefault("components", {}).setdefault("securitySchemes", {})
    schemes["token"] = {"type": "http", "scheme": "bearer", "description": "`pdk_...`"}
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            if allowed(method.upper(), path) != OPEN:
                operation["security"] = [{"token": []}]
    return document
