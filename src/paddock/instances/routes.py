"""`/api/instances`: graphs made from mappings, and their lives."""

from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api import facts
from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import optional_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, split
from paddock.api.plane import ThePlane
from paddock.api.routes.events import EVENT_EXAMPLE
from paddock.exports.mapping_routes import Text
from paddock.exports.routes import Role
from paddock.instances import model, service
from paddock.instances.bodies import BulkBody, ChangeBody, InstanceBody
from paddock.instances.instance_json import EXAMPLE, INSTANCE_ID, brief_json, instance_json

router = guarded_router("instances", PEOPLE)

VERDICT_EXAMPLE: dict[str, Any] = {"id": INSTANCE_ID, "verdict": "deleted"}
LONGEST_WAIT = 60.0


@router.get("/api/instances", summary="Instances, newest first", responses=documented_page(EXAMPLE))
async def list_instances(
    plane: ThePlane,
    caller: Asking,
    mapping: Text = None,
    snapshot: Text = None,
    owner: Text = None,
    status: Annotated[
        list[str] | None, Query(max_length=20, description="One or several, also with commas; left out: all.")
    ] = None,
    name: Annotated[str | None, Query(min_length=1, max_length=255, description="Exactly, but for its case.")] = None,
    q: Annotated[str | None, Query(min_length=1, max_length=255, description="In name or description.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    found = await model.page(
        plane.core.db,
        scope=caller.scope,
        owner=owner,
        mapping_id=optional_id(mapping, "mapping"),
        snapshot_id=optional_id(snapshot, "snapshot"),
        statuses=service.statuses_of(split(status)),
        name=name,
        text=q,
        before=read_place(cursor),
        limit=limit,
    )
    shown = [brief_json(plane, one) for one in found]
    return page(shown, next_cursor(shown, limit))


@router.post(
    "/api/instances",
    status_code=201,
    summary="Make a graph of a mapping or of a ready snapshot",
    responses=documented(EXAMPLE, status=201, description="Made; `Location` is the instance."),
)
async def create_instance(
    request: Request, body: InstanceBody, plane: ThePlane, caller: Asking, key: KeyHeader = None, role: Role = None
) -> Response:
    idempotency = key_of(caller, "POST /api/instances", key, [await request.json(), role])
    made = await service.create(plane, caller, body, role, idempotency=idempotency)
    return answer(await instance_json(plane, made), 201, {"Location": f"/api/instances/{made.id}"})


@router.post(
    "/api/instances/delete",
    summary="Delete several instances, each with a verdict",
    responses=documented([VERDICT_EXAMPLE], list[dict[str, Any]]),
)
async def delete_instances(body: BulkBody, plane: ThePlane, caller: Asking) -> Response:
    verdicts = await service.delete_many(plane, caller, body)
    return answer([service.verdict_json(one) for one in verdicts], dry_run=body.dry_run)


@router.get(
    "/api/instances/{instance_id}",
    summary="One instance; with wait, once it runs or failed",
    responses=documented(EXAMPLE),
)
async def get_instance(
    instance_id: str,
    plane: ThePlane,
    caller: Asking,
    wait: Annotated[float, Query(ge=0, le=LONGEST_WAIT, description="Seconds to wait until it runs or failed.")] = 0,
) -> Response:
    found = await service.visible(plane, caller, instance_id)
    if wait:
        found = await service.wait_until_settled(plane, caller, found, wait)
    return answer(await instance_json(plane, found))


@router.patch(
    "/api/instances/{instance_id}",
    summary="Rename an instance, or let it live longer",
    responses=documented(EXAMPLE),
)
async def change_instance(instance_id: str, body: ChangeBody, plane: ThePlane, caller: Asking) -> Response:
    return answer(await instance_json(plane, await service.change(plane, caller, instance_id, body)))


@router.delete(
    "/api/instances/{instance_id}",
    summary="Delete an instance; answers when it is gone",
    responses=documented(
        {"id": INSTANCE_ID, "status": "gone"}, description="Gone. 202 after 45 s: it goes, and `job_id` takes it down."
    ),
)
async def delete_instance(
    instance_id: str,
    plane: ThePlane,
    caller: Asking,
    reason: Annotated[
        str | None, Query(max_length=500, description="For the audit log, and for whoever looks for it.")
    ] = None,
) -> Response:
    removal = await service.delete(plane, caller, instance_id, reason=reason)
    if removal.left is None:
        return answer({"id": instance_id, "status": "gone"})
    return answer(await instance_json(plane, removal.left), 202)


@router.post(
    "/api/instances/{instance_id}/reopen",
    status_code=202,
    summary="Start an instance again that failed or runs",
    responses=documented(
        {**EXAMPLE, "status": "starting"}, status=202, description="It starts, with a new generation."
    ),
)
async def reopen_instance(instance_id: str, plane: ThePlane, caller: Asking, key: KeyHeader = None) -> Response:
    idempotency = key_of(caller, f"POST /api/instances/{instance_id}/reopen", key, None)
    again = await service.reopen(plane, caller, instance_id, idempotency=idempotency)
    return answer(await instance_json(plane, again), 202)


@router.get(
    "/api/instances/{instance_id}/events",
    summary="What happened to an instance, newest first",
    responses=documented_page(EVENT_EXAMPLE),
)
async def list_events(
    instance_id: str, plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    found = await service.visible(plane, caller, instance_id)
    events = await facts.events_page(
        plane.core.db, None, before=read_place(cursor), subject=model.subject_of(found.id), type=None, limit=limit
    )
    return page(events, next_cursor(events, limit))


@router.get(
    "/api/instances/{instance_id}/logs",
    summary="The end of an instance's log, after its death too",
    responses=documented({"log": "loaded Airport: 3,400 rows"}),
)
async def get_logs(instance_id: str, plane: ThePlane, caller: Asking) -> Response:
    return answer({"log": await service.logs(plane, caller, instance_id)})
