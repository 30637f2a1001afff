"""What a caller may do with mappings, whoever asks: a route, a page or a command only translates."""

from datetime import timedelta
from typing import Any

from paddock.api.durations import parse
from paddock.api.errors import invalid_field, not_found
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.exports import mappings, validating
from paddock.exports.mapping import Definition
from paddock.exports.mapping_bodies import (
    MappingBody,
    ValidationTarget,
    VersionBody,
)
from paddock.exports.mappings import Change, Mapping, NewMapping
from paddock.exports.service import allowed_engine

LONGEST_TTL = timedelta(days=36_500)


def prepare_mapping(caller: Caller, body: MappingBody) -> NewMapping:
    return NewMapping(
        owner=caller.owner,
        name=body.name.strip(),
        description=body.description,
        ttl=ttl_of(body.ttl),
        definition=Definition(nodes=body.nodes, edges=body.edges),
    )


def prepare_change(body: VersionBody) -> Change:
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


async def validate_on_engine(
    plane: ControlPlane, caller: Caller, asked: ValidationTarget, definition: Definition, role: str | None
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


async def visible_mapping(plane: ControlPlane, caller: Caller, text: str, version: int | None = None) -> Mapping:
    found = await mappings.get(plane.core.db, path_id(text, "mapping"), version)
    if found is None or not caller.sees(found.owner):
        raise not_found("mapping" if version is None else "version of a mapping")
    return found


def ttl_of(text: str | None) -> timedelta | None:
    if text is None:
        return None
    ttl = parse(text, "ttl")
    if not timedelta(0) < ttl <= LONGEST_TTL:
        raise invalid_field("ttl", "It should be more than zero and at most 100 years; null keeps it forever.")
    return ttl
