"""A mapping written in a form: a new one, or a new version, checked against an engine before it is saved."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.errors import ApiError
from paddock.api.tokens import Caller
from paddock.exports import mappings
from paddock.exports.mapping_bodies import ValidateSavedBody
from paddock.exports.mapping_routes import asked_change, asked_mapping, validated, visible_mapping
from paddock.exports.mappings import Mapping
from paddock.jobs.errors import Refused
from paddock.web import mapping_form, mapping_words
from paddock.web.engine_choice import engines_of, role_for, roles_of
from paddock.web.form_problems import status_of
from paddock.web.frame import back, form, page, plane_of, render
from paddock.web.mapping_form import Form, Problem, line_of


def routes() -> list[Route]:
    """Before `/mappings/{mapping_id}`, which would take them for ids."""
    return [
        page("/mappings/new", show_new),
        form("/mappings", create),
        form("/mappings/check", check),
        page("/mappings/{mapping_id}/edit", show_edit),
        form("/mappings/{mapping_id}/edit", change),
    ]


async def show_new(request: Request, caller: Caller) -> Response:
    return await _show(request, caller, Form(), None)


async def create(request: Request, caller: Caller) -> Response:
    asked = mapping_form.filled(dict(await request.form()))
    try:
        new = asked_mapping(caller, mapping_form.new_body(asked))
        made = await mappings.create(plane_of(request).core, new, actor=caller.actor)
    except (ApiError, Refused) as error:
        return await _show(request, caller, asked.refused(error), None, status=status_of(error))
    return back(request, f"/mappings/{made.id}", f"{made.name} is made.")


async def show_edit(request: Request, caller: Caller) -> Response:
    found = await visible_mapping(plane_of(request), caller, request.path_params["mapping_id"])
    return await _show(request, caller, mapping_form.form_of(found), found)


async def change(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await visible_mapping(plane, caller, request.path_params["mapping_id"])
    asked = mapping_form.filled(dict(await request.form()))
    try:
        wanted = asked_change(mapping_form.version_body(asked))
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


async def _judge(request: Request, caller: Caller, asked: Form) -> dict[str, Any]:
    plane = plane_of(request)
    definition = mapping_form.definition_of(asked)
    engines = engines_of(plane.config, caller)
    name = asked.engine or (engines[0].name if len(engines) == 1 else "")
    role = role_for(engines, name, asked.role)
    # Named as it was sent: what is no name of an engine is none that this token may use.
    body = ValidateSavedBody.model_construct(engine=name or None, catalog=None, schema_name=None)
    answer = await validated(plane, caller, body, definition, role)
    shown = mapping_words.entities(definition, answer)
    return {
        "valid": answer["valid"],
        "verdict": mapping_words.verdict(shown, name),
        "entities": shown,
        "lines": {
            column.field: line_of(asked.yaml, column.field)
            for entity in shown
            for column in entity.columns
            if column.wrong is not None
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
    )
