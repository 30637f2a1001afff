"""With whom an instance is shared, and the queries kept with a mapping."""

from typing import Any

from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.guard import guarded_router
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.exports.mapping_examples import MAPPING_ID
from paddock.instances import sharing
from paddock.instances.bodies import SavedQueryBody

router = guarded_router("instances", PEOPLE)

GRANT_EXAMPLE: dict[str, Any] = {"owner": "bob", "granted_by": "ada", "granted_at": "2026-11-16T09:30:00Z"}
SAVED_EXAMPLE: dict[str, Any] = {
    "id": "019a8b1e-4c60-7000-9d6e-6f1d3c0a51e7",
    "mapping_id": MAPPING_ID,
    "owner": "ada",
    "name": "hubs",
    "query": "MATCH (a:Airport) RETURN a.code LIMIT 5",
    "created_at": "2026-11-16T09:30:00Z",
}


@router.get(
    "/api/instances/{instance_id}/grants",
    summary="With whom an instance is shared",
    responses=documented([GRANT_EXAMPLE], list[dict[str, Any]]),
)
async def list_grants(instance_id: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await sharing.grants(plane, caller, instance_id))


@router.put(
    "/api/instances/{instance_id}/grants/{owner}",
    summary="Let somebody read and query an instance",
    responses=documented([GRANT_EXAMPLE], list[dict[str, Any]]),
)
async def put_grant(instance_id: str, owner: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await sharing.share(plane, caller, instance_id, owner))


@router.delete(
    "/api/instances/{instance_id}/grants/{owner}",
    summary="Share an instance no longer",
    responses=documented([], list[dict[str, Any]]),
)
async def drop_grant(instance_id: str, owner: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await sharing.unshare(plane, caller, instance_id, owner))


@router.get(
    "/api/mappings/{mapping_id}/queries",
    summary="The queries that are kept with a mapping, oldest first",
    responses=documented_page(SAVED_EXAMPLE),
)
async def list_saved(
    mapping_id: str, plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    found = await sharing.saved_queries(plane, caller, mapping_id, after=read_place(cursor), limit=limit)
    return page(found, next_cursor(found, limit))


@router.post(
    "/api/mappings/{mapping_id}/queries",
    status_code=201,
    summary="Keep a query with a mapping",
    responses=documented(SAVED_EXAMPLE, status=201, description="Kept."),
)
async def save_query(mapping_id: str, body: SavedQueryBody, plane: ThePlane, caller: Asking) -> Response:
    return answer(await sharing.save_query(plane, caller, mapping_id, body), 201)


@router.delete(
    "/api/mappings/{mapping_id}/queries/{query_id}",
    summary="Delete a saved query",
    responses=documented({"deleted": True}),
)
async def drop_query(mapping_id: str, query_id: str, plane: ThePlane, caller: Asking) -> Response:
    await sharing.drop_query(plane, caller, mapping_id, query_id)
    return answer({"deleted": True})
