"""Whether this process lives, whether it can serve, and its metrics. None of them needs a token of ours."""

import asyncio

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

import paddock
from paddock.api.auth import same_secret, unauthenticated
from paddock.api.documenting import documented
from paddock.api.errors import database_away, error_response
from paddock.api.pagination import answer
from paddock.api.plane import Plane, ThePlane
from paddock.jobs.enqueueing import SQL

READY_SECONDS = 2.0

router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"])


@router.get(
    "/health",
    summary="Does this process live?",
    responses=documented({"status": "ok", "version": "0.1.0"}),
)
async def health(plane: ThePlane) -> Response:
    if not plane.healthy():
        return not_ready("loops_stand_still", "This process no longer does its own work; start it again.")
    return answer({"status": "ok", "version": paddock.__version__})


@router.get("/ready", summary="Can it serve? It needs its database.", responses=documented({"status": "ready"}))
async def ready(plane: ThePlane) -> Response:
    if plane.closing.is_set():
        return not_ready("closing", "This process is about to stop.")
    try:
        async with asyncio.timeout(READY_SECONDS):
            await plane.core.db.fetchrow(SQL["drain_state"])
    except Exception as error:
        if not database_away(error):
            raise
        return not_ready("database_unavailable", "The database cannot be reached.")
    return answer({"status": "ready"})


def not_ready(code: str, message: str) -> Response:
    return error_response(503, code, message, headers={"Retry-After": "2"})


@metrics_router.get(
    "/metrics",
    response_class=Response,
    summary="Prometheus metrics",
    responses={
        200: {
            "description": "Prometheus text format.",
            "content": {"text/plain": {"schema": {"type": "string"}, "example": "paddock_streams 2.0\n"}},
        }
    },
)
async def metrics(request: Request, plane: ThePlane) -> Response:
    return metrics_response(request, plane)


def metrics_response(request: Request, plane: Plane) -> Response:
    token = plane.config.metrics_token
    authorization = request.headers.get("authorization")
    if token is not None and not same_secret(authorization, token.get_secret_value()):
        raise unauthenticated(sent=authorization is not None)
    for name in ("durable", "relaxed"):
        pool = plane.core.db.pool("durable" if name == "durable" else "relaxed")
        plane.metrics.pool_connections(name, "open").set(pool.get_size())
        plane.metrics.pool_connections(name, "idle").set(pool.get_idle_size())
    content, media_type = plane.metrics.render()
    return Response(content, headers={"Content-Type": media_type})
