"""Mappings: the list, one of them as any of its versions has it, and what changed between two."""

from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.durations import iso
from paddock.api.errors import ApiError
from paddock.api.keyset import cursor_after, read_place
from paddock.api.tokens import Caller
from paddock.exports import mappings, snapshot_states, yaml_form
from paddock.exports.mapping_bodies import CopyBody, ValidateSavedBody
from paddock.exports.mapping_difference import difference
from paddock.exports.mapping_json import mapping_json
from paddock.exports.mapping_service import validate_on_engine, visible_mapping
from paddock.exports.mappings import GREATEST_VERSION, Mapping
from paddock.exports.pages import mapping_words
from paddock.exports.pages.engine_choice import engines_of, role_for, roles_of
from paddock.exports.pages.engines import EngineQuestion
from paddock.exports.pages.mapping_picture import picture_of
from paddock.exports.settings import ExportSettings
from paddock.jobs.errors import Refused
from paddock.web.form_problems import as_refusal
from paddock.web.frame import back, clean, field, form, page, plane_of, regions, render

PAGE_LENGTH = 50
VERSIONS_SHOWN = 50
SNAPSHOTS_SHOWN = 5


def routes() -> list[Route]:
    return [
        page("/mappings", show, PEOPLE),
        page("/mappings/{mapping_id}", show_one, PEOPLE),
        page("/mappings/{mapping_id}/diff", show_diff, PEOPLE),
        form("/mappings/{mapping_id}/copy", copy, PEOPLE),
        form("/mappings/{mapping_id}/delete", delete, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    asked = request.query_params
    cursor, text = asked.get("cursor") or None, clean(asked.get("q") or "")[:255]
    owner = clean(asked.get("owner") or "")[:500]
    found = await mappings.page(
        plane_of(request).core.db,
        caller.scope or owner or None,
        text=text or None,
        before=read_place(cursor),
        limit=PAGE_LENGTH,
    )
    return await render(
        request,
        caller,
        "mappings.html",
        mappings=found,
        q=text,
        owner=owner,
        cursor=cursor,
        next_cursor=cursor_after(found, PAGE_LENGTH),
    )


async def show_one(request: Request, caller: Caller) -> Response:
    """With `validate`, the name of an engine, that is asked what the queries give."""
    plane = plane_of(request)
    found = await _version(request, caller, request.query_params.get("version"))
    engine, role = (clean(request.query_params.get(name) or "") for name in ("validate", "role"))
    asked = EngineQuestion(engine, role)
    engines = engines_of(plane.config, caller)
    judged: dict[str, Any] | None = None
    problem: ApiError | Refused | None = None
    if asked.engine and not regions(request):
        try:
            judged = await _judge(request, caller, found, asked)
        except (ApiError, Refused) as error:
            problem = error
    shown = mapping_words.entities(found.definition, judged)
    return await render(
        request,
        caller,
        "mapping.html",
        mapping=found,
        entities=shown,
        counted=mapping_words.counted(found.definition),
        picture=picture_of(found.definition),
        verdict=None if judged is None else mapping_words.verdict(shown, asked.engine),
        valid=judged is not None and judged["valid"],
        problem=problem,
        form=asked,
        engines=engines,
        roles=roles_of(caller),
        versions=await mappings.versions(plane.core.db, found.id, limit=VERSIONS_SHOWN),
        snapshots=await snapshot_states.page(
            plane.core.db, caller.scope, mapping_id=found.id, limit=SNAPSHOTS_SHOWN + 1
        ),
        shown_snapshots=SNAPSHOTS_SHOWN,
        expires_at=None if found.ttl is None else found.created_at + found.ttl,
        yaml=yaml_form.write(mapping_json(found)),
        explicit=plane.config.of(ExportSettings).explicit_snapshots,
        ttl=iso(found.ttl),
    )


async def _judge(request: Request, caller: Caller, found: Mapping, asked: EngineQuestion) -> dict[str, Any]:
    plane = plane_of(request)
    role = role_for(engines_of(plane.config, caller), asked.engine, asked.role)
    # Named as it was sent: what is no name of an engine is none that this token may use.
    body = ValidateSavedBody.model_construct(engine=asked.engine, catalog=None, schema_name=None)
    return await validate_on_engine(plane, caller, body, found.definition, role)


async def show_diff(request: Request, caller: Caller) -> Response:
    asked = request.query_params
    after = await _version(request, caller, asked.get("to"))
    before = await _version(request, caller, asked.get("from") or str(max(1, after.version - 1)))
    changes = mappings.diff(before, after)
    return await render(
        request,
        caller,
        "mapping_diff.html",
        mapping=after,
        before=before,
        changes=difference(changes),
        versions=await mappings.versions(plane_of(request).core.db, after.id, limit=500),
    )


async def copy(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    source = await _version(request, caller, await field(request, "version"))
    try:
        name = CopyBody(name=await field(request, "name")).name
    except ValidationError as error:
        raise as_refusal(error) from None
    made = await mappings.copy(plane.core, source, owner=caller.owner, name=name.strip(), actor=caller.actor)
    return back(request, f"/mappings/{made.id}", f"{made.name} is a copy of {source.name}, version {source.version}.")


async def delete(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await _version(request, caller, None)
    await mappings.delete(plane.core, found.id, actor=caller.actor, scope=caller.scope)
    return back(request, "/mappings", f"{found.name} was deleted with all its versions.")


async def _version(request: Request, caller: Caller, text: str | None) -> Mapping:
    """What is no number is no version, and simply not there."""
    known = bool(text) and str(text).isascii() and str(text).isdigit() and len(str(text)) < 10
    number = (min(int(str(text)), GREATEST_VERSION) if known else 0) if text else None
    return await visible_mapping(plane_of(request), caller, request.path_params["mapping_id"], number)
