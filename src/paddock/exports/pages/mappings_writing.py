"""A mapping written in a form: a new one, or a new version, checked against an engine before it is saved."""

import asyncio
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError, invalid_field
from paddock.api.tokens import Caller
from paddock.exports import mappings
from paddock.exports.mapping import checked
from paddock.exports.mapping_bodies import ValidateSavedBody
from paddock.exports.mapping_service import prepare_change, prepare_mapping, validate_on_engine, visible_mapping
from paddock.exports.mappings import Mapping
from paddock.exports.model import Section
from paddock.exports.pages import mapping_adding, mapping_form, mapping_words
from paddock.exports.pages.engine_choice import engines_of, role_for, roles_of
from paddock.exports.pages.mapping_form import Form, Problem, line_of, lines_of
from paddock.exports.pages.mapping_from_table import beginning
from paddock.exports.pages.mapping_picture import picture_of
from paddock.exports.schema.service import browse
from paddock.exports.service import AskBody, ask_engine
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject
from paddock.web.form_problems import as_refusal, status_of
from paddock.web.frame import back, clean, form, page, plane_of, render


def routes() -> list[Route]:
    """Before `/mappings/{mapping_id}`, which would take them for ids."""
    return [
        page("/mappings/new", show_new, PEOPLE),
        form("/mappings", create, PEOPLE),
        form("/mappings/check", check, PEOPLE),
        form("/mappings/picture", draw, PEOPLE),
        form("/mappings/add", add, PEOPLE),
        page("/mappings/{mapping_id}/edit", show_edit, PEOPLE),
        form("/mappings/{mapping_id}/edit", change, PEOPLE),
    ]


async def show_new(request: Request, caller: Caller) -> Response:
    """Where a table is named, its node is there to begin with, as far as the schema cache shows it to this person."""
    engine, *place = (
        clean(request.query_params.get(name) or "")[:500] for name in ("engine", "catalog", "schema", "table")
    )
    catalog, schema, table = place
    if not (engine and table):
        return await _show(request, caller, Form(), None)
    found = await browse(plane_of(request), caller, engine, catalog, schema, table, None, any_engine=True)
    began = Form() if found is None else Form(yaml=beginning((catalog, schema, table), found["columns"]), engine=engine)
    return await _show(request, caller, began, None)


async def create(request: Request, caller: Caller) -> Response:
    asked = mapping_form.filled(dict(await request.form()))
    try:
        new = prepare_mapping(caller, mapping_form.new_body(asked))
        made = await mappings.create(plane_of(request).core, new, actor=caller.actor)
    except (ApiError, Refused) as error:
        return await _show(request, caller, asked.refused(error), None, status=status_of(error))
    return back(request, f"/mappings/{made.id}", f"{made.name} was created.")


async def show_edit(request: Request, caller: Caller) -> Response:
    found = await visible_mapping(plane_of(request), caller, request.path_params["mapping_id"])
    return await _show(request, caller, mapping_form.form_of(found), found)


async def change(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await visible_mapping(plane, caller, request.path_params["mapping_id"])
    asked = mapping_form.filled(dict(await request.form()))
    try:
        wanted = prepare_change(mapping_form.version_body(asked))
        changed = await mappings.change(plane.core, found.id, wanted, actor=caller.actor)
    except (ApiError, Refused) as error:
        return await _show(request, caller, asked.refused(error), found, status=status_of(error))
    return back(request, f"/mappings/{changed.id}", f"This is version {changed.version} of {changed.name}.")


async def check(request: Request, caller: Caller) -> Response:
    """Nothing is saved. The answer alone where a script asked, else the whole form with it."""
    values = dict(await request.form())
    asked = mapping_form.filled(values)
    judged: dict[str, Any] | None = None
    try:
        judged = await _judge(request, caller, asked)
    except (ApiError, Refused) as error:
        asked = asked.refused(error)
    if "hx-request" in request.headers:
        return await render(request, caller, "mapping_checked.html", form=asked, judged=judged)
    text = str(values.get("mapping") or "")
    mapping = await visible_mapping(plane_of(request), caller, text) if text else None
    return await _show(request, caller, asked, mapping, judged=judged)


async def draw(request: Request, caller: Caller) -> Response:
    """The picture of what is being typed."""
    asked = mapping_form.filled(dict(await request.form()))
    return await render(request, caller, "mapping_drawn.html", form=asked, **await asyncio.to_thread(_drawn, asked))


def _drawn(asked: Form) -> dict[str, Any]:
    """What can be drawn is, also where something in it is wrong; `wrong` has the nodes and edges where it is."""
    definition, problems = None, asked
    try:
        definition = mapping_form.unchecked(asked)
        checked(definition)
    except (ApiError, Refused) as error:
        problems = asked.refused(error)
    fields = [f"nodes.{n}" for n in range(len(definition.nodes))] if definition else []
    fields += [f"edges.{n}" for n in range(len(definition.edges))] if definition else []
    return {
        "picture": None if definition is None else picture_of(definition),
        "places": lines_of(asked.yaml, fields),
        "wrong": {".".join(one.field.split(".")[:2]) for one in problems.listed},
        "undrawn": problems.listed if definition is None else (),
    }


async def add(request: Request, caller: Caller) -> Response:
    """The form again with one more node or edge in its text; nothing is saved."""
    values = dict(await request.form())
    asked = mapping_form.filled(values)
    section: Section = "edges" if values.get("section") == "edges" else "nodes"
    status = 200
    try:
        mapping_adding.check(asked, section)
        asked = mapping_adding.added(asked, section, await _columns_of(request, caller, asked))
    except (ApiError, Refused) as error:
        asked, status = asked.refused(error), status_of(error)
    text = str(values.get("mapping") or "")
    mapping = await visible_mapping(plane_of(request), caller, text) if text else None
    return await _show(request, caller, asked, mapping, status=status)


async def _columns_of(request: Request, caller: Caller, asked: Form) -> list[JsonObject]:
    plane = plane_of(request)
    engines = engines_of(plane.config, caller)
    name = asked.engine or (engines[0].name if len(engines) == 1 else "")
    role = role_for(engines, name, asked.role)
    try:
        answer = await ask_engine(plane, caller, name, "describe", AskBody(sql=asked.add_sql), role)
    except ValidationError as error:
        raise as_refusal(error) from None
    except Refused as refused:
        raise invalid_field("add_sql", f"{refused.message} {refused.hint or ''}".strip()) from None
    columns: list[JsonObject] = answer["columns"]
    return columns


async def _judge(request: Request, caller: Caller, asked: Form) -> dict[str, Any]:
    plane = plane_of(request)
    definition = mapping_form.definition_of(asked)
    engines = engines_of(plane.config, caller)
    name = asked.engine or (engines[0].name if len(engines) == 1 else "")
    role = role_for(engines, name, asked.role)
    # Named as it was sent: what is no name of an engine is none that this token may use.
    body = ValidateSavedBody.model_construct(engine=name or None, catalog=None, schema_name=None)
    answer = await validate_on_engine(plane, caller, body, definition, role)
    shown = mapping_words.entities(definition, answer)
    return {
        "valid": answer["valid"],
        "verdict": mapping_words.verdict(shown, name),
        "entities": shown,
        "lines": {
            column.field: line_of(asked.yaml, column.field)
            for entity in shown
            for column in entity.columns
            if column.wrong or column.warning
        },
        "errors": [_failed(asked, entity) for entity in shown if entity.error is not None],
    }


def _failed(asked: Form, entity: mapping_words.Entity) -> Problem:
    """A query that the engine refuses: at the line of the text where it begins, plus the line inside it."""
    assert entity.error is not None
    field = entity.columns[0].field.rpartition(".")[0] + ".sql"
    hint = f" {entity.error['hint']}" if entity.error.get("hint") else ""
    return Problem(field, f"{entity.error['message']}{hint}", line_of(asked.yaml, field))


async def _show(
    request: Request,
    caller: Caller,
    asked: Form,
    mapping: Mapping | None,
    *,
    status: int = 200,
    judged: dict[str, Any] | None = None,
) -> Response:
    config = plane_of(request).config
    return await render(
        request,
        caller,
        "mapping_form.html",
        status=status,
        form=asked,
        mapping=mapping,
        engines=engines_of(config, caller),
        roles=roles_of(caller),
        judged=judged,
        **await asyncio.to_thread(_drawn, asked),
    )
