"""What is asked of a running instance: a fixed list of routes, passed on by `proxy`."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.errors import ApiError
from paddock.api.guard import guarded_router
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.tokens import Caller
from paddock.instances import proxy, service
from paddock.instances.bodies import QueryBody
from paddock.instances.model import Instance

ASKED_EXAMPLE = {
    "query_id": "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7",
    "owner": "ada",
    "query": "MATCH (a:Airport) RETURN a.code LIMIT 5",
    "state": "running",
    "since": "2026-11-18T09:12:44.102Z",
    "seconds": 1.204,
}
router = guarded_router("instances", PEOPLE)

QUERY_EXAMPLE: dict[str, Any] = {
    "columns": ["code"],
    "column_types": ["STRING"],
    "rows": [["KFD"]],
    "row_count": 1,
    "execution_time_ms": 2.1,
    "truncated": False,
}


@router.post(
    "/api/instances/{instance_id}/query",
    summary="Ask an instance in Cypher; JSON, CSV or an Arrow stream by Accept",
    responses=documented(QUERY_EXAMPLE),
)
async def query(request: Request, instance_id: str, body: QueryBody, plane: ThePlane, caller: Asking) -> Response:
    found = await service.visible(plane, caller, instance_id)
    accept = proxy.accepted_type(request.headers.get("accept", ""))
    return await proxy.forward_query(plane, request, caller, found.id, body, accept)


@router.get(
    "/api/instances/{instance_id}/queries",
    summary="What is being asked of an instance now",
    responses=documented([ASKED_EXAMPLE], list[dict[str, Any]]),
)
async def queries(request: Request, instance_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await service.visible(plane, caller, instance_id)
    return await proxy.forward(plane, request, found.id, "GET", "/queries")


@router.post(
    "/api/instances/{instance_id}/queries/{query_id}/cancel",
    summary="Cancel a query",
    responses=documented({"cancelled": True}),
)
async def cancel_query(request: Request, instance_id: str, query_id: str, plane: ThePlane, caller: Asking) -> Response:
    found, id = await service.visible(plane, caller, instance_id), path_id(query_id, "query")
    if not service.may_change(caller, found):
        await _check_own(plane, request, caller, found, str(id))
    return await proxy.forward(plane, request, found.id, "POST", f"/queries/{id}/cancel", {})


async def _check_own(plane: ControlPlane, request: Request, caller: Caller, instance: Instance, query_id: str) -> None:
    """Whom an instance is shared with cancels their own queries; for them the others are there to be read."""
    answer = await proxy.ask(plane, request, instance.id, "GET", "/queries")
    queries = answer.body.get("data")
    for query in queries if isinstance(queries, list) else ():
        if isinstance(query, dict) and query.get("query_id") == query_id and query.get("owner") == caller.owner:
            return
    raise ApiError(
        403,
        "not_yours",
        f"The instance '{instance.name}' is shared with you: you may cancel your own queries, and no such one runs.",
        hint=f"Ask {instance.owner}.",
    )


@router.get(
    "/api/instances/{instance_id}/schema",
    summary="Labels and edge types with their properties and counts",
    responses=documented({"nodes": [], "edges": []}),
)
async def schema(request: Request, instance_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await service.visible(plane, caller, instance_id)
    return await proxy.forward(plane, request, found.id, "GET", "/schema")


@router.get(
    "/api/instances/{instance_id}/status",
    summary="How a running instance is",
    responses=documented({"phase": "ready", "in_flight": 0}),
)
async def status(request: Request, instance_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await service.visible(plane, caller, instance_id)
    return await proxy.forward(plane, request, found.id, "GET", "/status")
