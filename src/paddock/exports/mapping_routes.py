"""`/api/mappings`: which query gives which nodes and edges, version by version."""

from dataclasses import asdict
from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, read_cursor, write_cursor
from paddock.api.plane import ThePlane
from paddock.exports import mappings
from paddock.exports.mapping import Definition
from paddock.exports.mapping_bodies import (
    CopyBody,
    MappingBody,
    ValidateBody,
    ValidateSavedBody,
    VersionBody,
)
from paddock.exports.mapping_examples import (
    BRIEF_EXAMPLE,
    DIFF_EXAMPLE,
    MAPPING_EXAMPLE,
    VALID_EXAMPLE,
    VERSION_EXAMPLE,
)
from paddock.exports.mapping_json import brief_json, mapping_json
from paddock.exports.mapping_service import prepare_change, prepare_mapping, validate_on_engine, visible_mapping
from paddock.exports.mappings import GREATEST_VERSION
from paddock.exports.routes import Role

router = guarded_router("mappings", PEOPLE)

Text = Annotated[str | None, Query(min_length=1, max_length=500)]


@router.get("/api/mappings", summary="Mappings, newest first", responses=documented_page(BRIEF_EXAMPLE))
async def list_mappings(
    plane: ThePlane,
    caller: Asking,
    q: Annotated[str | None, Query(min_length=1, max_length=255, description="In name or description.")] = None,
    name: Annotated[str | None, Query(min_length=1, max_length=255, description="Exactly, but for its case.")] = None,
    owner: Text = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    if owner is not None and not caller.sees(owner):
        return page([], None)
    found = await mappings.page(
        plane.core.db, caller.scope or owner, name=name, text=q, before=read_place(cursor), limit=limit
    )
    shown = [brief_json(one) for one in found]
    return page(shown, next_cursor(shown, limit))


@router.post(
    "/api/mappings",
    status_code=201,
    summary="Make a mapping",
    responses=documented(MAPPING_EXAMPLE, status=201, description="Made; `Location` is the mapping."),
)
async def create_mapping(
    request: Request, body: MappingBody, plane: ThePlane, caller: Asking, key: KeyHeader = None
) -> Response:
    idempotency = key_of(caller, "POST /api/mappings", key, await request.json())
    made = await mappings.create(plane.core, prepare_mapping(caller, body), actor=caller.actor, idempotency=idempotency)
    return answer(mapping_json(made), 201, {"Location": f"/api/mappings/{made.id}"})


# Before the routes with {mapping_id}, which would take it for an id.
@router.post(
    "/api/mappings/validate",
    summary="Ask the engine whether these queries give these columns; nothing is saved",
    responses=documented(VALID_EXAMPLE),
)
async def validate(body: ValidateBody, plane: ThePlane, caller: Asking, role: Role = None) -> Response:
    definition = Definition(nodes=body.nodes, edges=body.edges)
    return answer(await validate_on_engine(plane, caller, body, definition, role))


@router.get("/api/mappings/{mapping_id}", summary="One mapping, newest version", responses=documented(MAPPING_EXAMPLE))
async def get_mapping(mapping_id: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(mapping_json(await visible_mapping(plane, caller, mapping_id)))


@router.delete(
    "/api/mappings/{mapping_id}",
    summary="Delete a mapping of which there are no snapshots",
    responses=documented(MAPPING_EXAMPLE),
)
async def delete_mapping(mapping_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await visible_mapping(plane, caller, mapping_id)
    await mappings.delete(plane.core, found.id, actor=caller.actor, scope=caller.scope)
    return answer(mapping_json(found))


@router.get(
    "/api/mappings/{mapping_id}/versions",
    summary="Its versions, newest first",
    responses=documented_page(VERSION_EXAMPLE),
)
async def list_versions(
    mapping_id: str, plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    found = await visible_mapping(plane, caller, mapping_id)
    before = None if cursor is None else min(read_cursor(cursor, int), GREATEST_VERSION)
    listed = await mappings.versions(plane.core.db, found.id, before=before and max(before, 0), limit=limit)
    return page([asdict(one) for one in listed], write_cursor(listed[-1].version) if len(listed) == limit else None)


@router.post(
    "/api/mappings/{mapping_id}/versions",
    status_code=201,
    summary="Change a mapping: a new version",
    responses=documented(MAPPING_EXAMPLE, status=201, description="The new version."),
)
async def create_version(
    request: Request, mapping_id: str, body: VersionBody, plane: ThePlane, caller: Asking, key: KeyHeader = None
) -> Response:
    found = await visible_mapping(plane, caller, mapping_id)
    wanted = prepare_change(body)
    idempotency = key_of(caller, f"POST /api/mappings/{found.id}/versions", key, await request.json())
    changed = await mappings.change(plane.core, found.id, wanted, actor=caller.actor, idempotency=idempotency)
    return answer(mapping_json(changed), 201, {"Location": f"/api/mappings/{found.id}/versions/{changed.version}"})


@router.get(
    "/api/mappings/{mapping_id}/versions/{version}", summary="One version", responses=documented(MAPPING_EXAMPLE)
)
async def get_version(mapping_id: str, version: str, plane: ThePlane, caller: Asking) -> Response:
    number = int(version) if version.isascii() and version.isdigit() and len(version) < 10 else 0
    return answer(mapping_json(await visible_mapping(plane, caller, mapping_id, number)))


@router.get(
    "/api/mappings/{mapping_id}/diff",
    summary="What changed between two versions",
    responses=documented(DIFF_EXAMPLE),
)
async def compare(
    mapping_id: str,
    plane: ThePlane,
    caller: Asking,
    from_version: Annotated[
        int | None, Query(alias="from", ge=1, le=GREATEST_VERSION, description="Left out: the one before `to`.")
    ] = None,
    to_version: Annotated[
        int | None, Query(alias="to", ge=1, le=GREATEST_VERSION, description="Left out: the newest.")
    ] = None,
) -> Response:
    after = await visible_mapping(plane, caller, mapping_id, to_version)
    before = await visible_mapping(plane, caller, mapping_id, from_version or max(1, after.version - 1))
    return answer(mappings.diff(before, after))


@router.post(
    "/api/mappings/{mapping_id}/copy",
    status_code=201,
    summary="A new mapping of your own from a version of this one",
    responses=documented(MAPPING_EXAMPLE, status=201, description="The copy."),
)
async def copy_mapping(
    request: Request, mapping_id: str, body: CopyBody, plane: ThePlane, caller: Asking, key: KeyHeader = None
) -> Response:
    source = await visible_mapping(plane, caller, mapping_id, body.version)
    idempotency = key_of(caller, f"POST /api/mappings/{source.id}/copy", key, await request.json())
    made = await mappings.copy(
        plane.core, source, owner=caller.owner, name=body.name.strip(), actor=caller.actor, idempotency=idempotency
    )
    return answer(mapping_json(made), 201, {"Location": f"/api/mappings/{made.id}"})


@router.post(
    "/api/mappings/{mapping_id}/validate",
    summary="Ask the engine whether its queries give its columns",
    responses=documented(VALID_EXAMPLE),
)
async def validate_saved(
    mapping_id: str, body: ValidateSavedBody, plane: ThePlane, caller: Asking, role: Role = None
) -> Response:
    found = await visible_mapping(plane, caller, mapping_id, body.version)
    return answer(await validate_on_engine(plane, caller, body, found.definition, role))
