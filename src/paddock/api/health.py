"""Whether this process lives, whether it can serve, and its metrics. None of them needs a token of ours."""

import asyncio
import re

from starlette.requests import Request
from starlette.responses import Response

import paddock
from paddock.api.auth import same_secret, unauthenticated
from paddock.api.database_problems import database_problem
from paddock.api.documenting import documented
from paddock.api.errors import error_response
from paddock.api.guard import open_router
from paddock.api.kinds_seen import naming_kinds, naming_labels
from paddock.api.pagination import answer
from paddock.api.plane import ControlPlane, ThePlane
from paddock.jobs.enqueueing import SQL

READY_SECONDS = 2.0

router = open_router("health")
metrics_router = open_router("health")


@router.get(
    "/health",
    summary="Does this process live?",
    responses=documented({"status": "ok", "version": "0.1.0"}),
)
async def health(plane: ThePlane) -> Response:
    if not plane.healthy():
        return not_ready("loops_stand_still", "This process no longer does its own work; start it again.")
    notice = plane.database_notice()
    told = {} if notice is None else {"database": notice}
    return answer({"status": "ok", "version": paddock.__version__, **told})


@router.get("/ready", summary="Can it serve? It needs its database.", responses=documented({"status": "ready"}))
async def ready(plane: ThePlane) -> Response:
    if plane.closing.is_set():
        return not_ready("closing", "This process is about to stop.")
    try:
        async with asyncio.timeout(READY_SECONDS):
            await plane.core.db.fetchrow(SQL["drain_state"])
    except Exception as error:
        if (problem := database_problem(error)) is None:
            raise
        return not_ready(problem.code, problem.message, problem.hint)
    # Reading works on a disk that is full; what the passes last ran into tells whether writing does.
    for failed in plane.pass_problems():
        if (problem := database_problem(failed)) is not None:
            return not_ready(problem.code, problem.message, problem.hint)
    return answer({"status": "ready"})


def not_ready(code: str, message: str, hint: str | None = None) -> Response:
    return error_response(503, code, message, hint=hint, headers={"Retry-After": "2"})


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


def metrics_response(request: Request, plane: ControlPlane) -> Response:
    token = plane.config.metrics_token
    authorization = request.headers.get("authorization")
    if token is not None and not same_secret(authorization, token.get_secret_value()):
        raise unauthenticated(sent=authorization is not None)
    _measure_pools(plane)
    content, media_type = plane.metrics.render()
    if token is None and plane.config.metrics_port is None:
        content = _without_names(content)
    return Response(content, headers={"Content-Type": media_type})


def _measure_pools(plane: ControlPlane) -> None:
    used = most = 0
    for name in ("durable", "relaxed"):
        pool = plane.core.db.pool("durable" if name == "durable" else "relaxed")
        plane.metrics.pool_connections(name, "open").set(pool.get_size())
        plane.metrics.pool_connections(name, "idle").set(pool.get_idle_size())
        used += pool.get_size() - pool.get_idle_size()
        most += pool.get_max_size()
    for state, n in (("available", most - used), ("in_use", used), ("total", most)):
        plane.metrics.database_connections(state).set(n)


def _without_names(content: bytes) -> bytes:
    """Anybody can read these metrics, and some kinds and labels carry the name of a database or the like."""
    values = [*(f'{label}="' for label in naming_labels()), *(f'kind="{begin}' for begin in naming_kinds())]
    named = re.compile(rf"[{{,](?:{'|'.join(map(re.escape, values))})".encode())
    return b"".join(line for line in content.splitlines(keepends=True) if not named.search(line))
