"""`/api/mappings`: which query gives which nodes and edges, version by version."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated, Any

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso, parse
from paddock.api.errors import invalid_field, not_found
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, read_cursor, write_cursor
from paddock.api.plane import Plane, ThePlane
from paddock.api.tokens import Caller
from paddock.exports import mappings, validating
from paddock.exports.mapping import Definition
from paddock.exports.mapping_bodies import (
    AskedEngine,
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
from paddock.exports.mappings import GREATEST_VERSION, BriefMapping, Change, Mapping, NewMapping
from paddock.exports.routes import Role, allowed_engine

router = guarded_router("mappings")

LONGEST_TTL = timedelta(days=36_500)
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
    made = await mappings.create(plane.core, asked_mapping(caller, body), actor=caller.actor, idempotency=idempotency)
    return answer(mapping_json(made), 201, {"Location": f"/api/mappings/{made.id}"})


def asked_mapping(caller: Caller, body: MappingBody) -> NewMapping:
    return NewMapping(
        owner=caller.owner,
        name=body.name.strip(),
        description=body.description,
        ttl=ttl_of(body.ttl),
        definition=Definition(nodes=body.nodes, edges=body.edges),
    )


# Before the routes with {mapping_id}, which would take it for an id.
@router.post(
    "/api/mappings/validate",
    summary="Ask the engine whether these queries give these columns; nothing is saved",
    responses=documented(VALID_EXAMPLE),
)
async def validate(body: ValidateBody, plane: ThePlane, caller: Asking, role: Role = None) -> Response:
    definition = Definition(nodes=body.nodes, edges=body.edges)
    return answer(await validated(plane, caller, body, definition, role))


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
    wanted = asked_change(body)
    idempotency = key_of(caller, f"POST /api/mappings/{found.id}/versions", key, await request.json())
    changed = await mappings.change(plane.core, found.id, wanted, actor=caller.actor, idempotency=idempotency)
    return answer(mapping_json(changed), 201, {"Location": f"/api/mappings/{found.id}/versions/{changed.version}"})


def asked_change(body: VersionBody) -> Change:
    if body.nodes is None and body.edges is not None:
        raise invalid_field("nodes", "A definition has both: send `nodes` with `edges`.")
    return Change(
        change_description=body.change_description,
        definition=None if body.nodes is None else Definition(nodes=body.nodes, edges=body.edges or []),
        name=None if body.name is None else body.name.strip(),
        description=body.description,
        ttl=ttl_of(body.ttl),
        keep_ttl="ttl" not in body.model_fields_set,
        based_on=body.based_on,
    )


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
    return answer(await validated(plane, caller, body, found.definition, role))


async def validated(
    plane: Plane, caller: Caller, asked: AskedEngine, definition: Definition, role: str | None
) -> dict[str, Any]:
    engine, _ = allowed_engine(plane.config, caller, asked.engine, role)
    return await validating.validate(
        plane.core,
        definition,
        engine=engine,
        catalog=asked.catalog,
        schema_name=asked.schema_name,
        owner=caller.owner,
        role=role,
    )


async def visible_mapping(plane: Plane, caller: Caller, text: str, version: int | None = None) -> Mapping:
    found = await mappings.get(plane.core.db, path_id(text, "mapping"), version)
    if found is None or not caller.sees(found.owner):
        raise not_found("mapping" if version is None else "version of a mapping")
    return found


def ttl_of(text: str | None) -> timedelta | None:
    if text is None:
        return None
    ttl = parse(text, "ttl")
    if not timedelta(0) < ttl <= LONGEST_TTL:
        raise invalid_field("ttl", "It is longer than nothing and at most 100 years; null is for ever.")
    return ttl


def brief_json(mapping: BriefMapping) -> dict[str, Any]:
    return _shown({**asdict(mapping), "version": mapping.version}, mapping)


def mapping_json(mapping: Mapping) -> dict[str, Any]:
    shown = {name: getattr(mapping, name) for name in Mapping.__slots__ if name != "definition"}
    return {**_shown(shown, mapping), **mapping.definition.dumped()}


def _shown(fields: dict[str, Any], mapping: BriefMapping | Mapping) -> dict[str, Any]:
    own = f"/api/mappings/{mapping.id}"
    return {
        **fields,
        "ttl": iso(mapping.ttl),
        "expires_at": None if mapping.ttl is None else mapping.created_at + mapping.ttl,
        "links": {"self": own, "versions": f"{own}/versions", "snapshots": f"/api/snapshots?mapping={mapping.id}"},
    }
