"""A new export: a query or a table, its first rows, and then its files."""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.tokens import Caller
from paddock.exports.pages import export_form
from paddock.exports.pages.engine_choice import engines_of, mode_for, role_for, roles_of
from paddock.exports.pages.export_form import Form
from paddock.exports.pages.preview import Preview, preview_of
from paddock.exports.service import ask_engine, create_export, visible_export
from paddock.exports.settings import ExportSettings
from paddock.jobs.errors import Refused
from paddock.web.faults import Fault, fault_of_refusal
from paddock.web.form_problems import status_of
from paddock.web.frame import back, form, page, plane_of, render

ROWS = 20


def routes() -> list[Route]:
    """Before `/exports/{export_id}`, which would take them for ids."""
    return [
        page("/exports/new", show, PEOPLE),
        form("/exports/new", create, PEOPLE),
        form("/exports/preview", preview, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    like = request.query_params.get("like")
    if like:
        asked = export_form.like(await visible_export(plane_of(request), caller, like))
    else:
        asked = export_form.form_from_address(request.query_params)
    return await _show(request, caller, asked)


async def create(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    asked = export_form.filled(dict(await request.form()))
    try:
        engines = engines_of(plane.config, caller)
        role = role_for(engines, asked.engine, asked.role)
        meant = replace(asked, mode=mode_for(engines, asked.engine, asked.mode))
        made = await create_export(plane, caller, export_form.request_of(meant), role)
    except (ApiError, Refused) as error:
        return await _show(request, caller, asked.refused(error), status=status_of(error))
    return back(request, f"/exports/{made.id}")


async def preview(request: Request, caller: Caller) -> Response:
    """The answer alone where a script asked, else the whole form with it."""
    asked = export_form.filled(dict(await request.form()))
    shown: dict[str, Any] = {"preview": None, "fault": None}
    try:
        shown["preview"] = await _first_rows(request, caller, asked)
    except (ApiError, Refused) as error:
        shown["fault"] = fault_of_refusal(error, asked.sql)
    if "hx-request" in request.headers:
        return await render(request, caller, "export_preview.html", **shown)
    return await _show(request, caller, asked, **shown)


async def _first_rows(request: Request, caller: Caller, asked: Form) -> Preview:
    plane = plane_of(request)
    engines = engines_of(plane.config, caller)
    name = asked.engine or (engines[0].name if len(engines) == 1 else "")
    role = role_for(engines, name, asked.role)
    answer = await ask_engine(plane, caller, name, "preview", export_form.question_of(asked, ROWS), role)
    return preview_of(answer, ROWS)


async def _show(
    request: Request,
    caller: Caller,
    asked: Form,
    *,
    status: int = 200,
    preview: Preview | None = None,
    fault: Fault | None = None,
) -> Response:
    config = plane_of(request).config
    return await render(
        request,
        caller,
        "export_new.html",
        status=status,
        form=asked,
        engines=engines_of(config, caller),
        roles=roles_of(caller),
        formats=export_form.FORMATS,
        compressions=export_form.COMPRESSIONS,
        delimiters=export_form.DELIMITERS,
        destinations=sorted(
            name for name in config.of(ExportSettings).destinations if caller.may_use("destinations", name)
        ),
        preview=preview,
        fault=fault,
    )
