"""`/api/instances/{id}/algo`: algorithms on a running instance. An execution is a job; its id is the job's."""

from typing import Any

from pydantic import ConfigDict, RootModel
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import EXAMPLE_ID
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.instances import activity, algorithm_service, proxy, service
from paddock.instances.algorithm_service import SHORTEST_PATH, execution_json

router = guarded_router("instances", PEOPLE)

PARAMETERS: dict[str, Any] = {"damping": 0.85, "write_property": "rank"}
EXECUTION_EXAMPLE: dict[str, Any] = {
    "execution_id": EXAMPLE_ID,
    "algorithm": "pagerank",
    "status": "running",
    "parameters": PARAMETERS,
    "asked_by": "ada",
    "percent": 40,
    "phase": "computing",
    "result": None,
    "error": None,
    "created_at": "2026-11-16T09:30:00Z",
    "started_at": "2026-11-16T09:30:00Z",
    "completed_at": None,
}
LOCK_EXAMPLE: dict[str, Any] = {
    "locked": True,
    "execution_id": EXAMPLE_ID,
    "holder": "ada",
    "algorithm": "pagerank",
    "since": "2026-11-16T09:30:00Z",
}
SHORTEST_PATH_SECONDS = 120.0


class AlgorithmParameters(RootModel[dict[str, Any]]):
    """As GET …/algo lists them."""

    model_config = ConfigDict(json_schema_extra={"examples": [PARAMETERS]})


@router.get(
    "/api/instances/{instance_id}/algo",
    summary="The algorithms there are, with their parameters",
    responses=documented([{"name": "pagerank", "parameters": []}], list[dict[str, Any]]),
)
async def list_algorithms(request: Request, instance_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await service.visible(plane, caller, instance_id)
    return await proxy.forward(plane, request, found.id, "GET", "/algo")


@router.get(
    "/api/instances/{instance_id}/lock",
    summary="Who runs an algorithm on an instance",
    responses=documented(LOCK_EXAMPLE),
)
async def get_lock(instance_id: str, plane: ThePlane, caller: Asking) -> Response:
    held = await algorithm_service.lock(plane, await service.visible(plane, caller, instance_id))
    return answer({"locked": held is not None, **(held or {})})


@router.get(
    "/api/instances/{instance_id}/algo/executions",
    summary="Executions of algorithms, newest first",
    responses=documented_page(EXECUTION_EXAMPLE),
)
async def list_executions(
    instance_id: str, plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    shown, after = await algorithm_service.page(plane, caller, instance_id, limit=limit, cursor=cursor)
    return page(shown, after)


@router.get(
    "/api/instances/{instance_id}/algo/executions/{execution_id}",
    summary="One execution of an algorithm",
    responses=documented(EXECUTION_EXAMPLE),
)
async def get_execution(instance_id: str, execution_id: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(execution_json(await algorithm_service.execution(plane, caller, instance_id, execution_id)))


@router.post(
    "/api/instances/{instance_id}/algo/executions/{execution_id}/cancel",
    summary="Cancel an execution",
    responses=documented({**EXECUTION_EXAMPLE, "status": "cancelled"}),
)
async def cancel_execution(instance_id: str, execution_id: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(execution_json(await algorithm_service.cancel(plane, caller, instance_id, execution_id)))


@router.post(
    "/api/instances/{instance_id}/algo/{name}",
    status_code=202,
    summary="Run an algorithm; shortest_path answers at once",
    responses=documented(EXECUTION_EXAMPLE, status=202, description="It runs; 200 with the path for shortest_path."),
)
async def run_algorithm(
    request: Request,
    instance_id: str,
    name: str,
    plane: ThePlane,
    caller: Asking,
    body: AlgorithmParameters | None = None,
    key: KeyHeader = None,
) -> Response:
    parameters = {} if body is None else body.root
    if name == SHORTEST_PATH:
        found = await service.visible(plane, caller, instance_id)
        await activity.note(plane.core.db, found.id)
        asked = {**parameters, "owner": caller.owner}
        return await proxy.forward(
            plane, request, found.id, "POST", f"/algo/{SHORTEST_PATH}", asked, seconds=SHORTEST_PATH_SECONDS
        )
    idempotency = key_of(caller, f"POST /api/instances/{instance_id}/algo/{name}", key, parameters)
    job = await algorithm_service.run(plane, caller, instance_id, name, parameters, idempotency=idempotency)
    return answer(execution_json(job), 202, {"Location": f"/api/instances/{instance_id}/algo/executions/{job.id}"})
