"""Drain mode, settings of the whole installation, what this process was started with, and what `paddock doctor` finds."""

import time
from dataclasses import asdict
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock import doctor
from paddock.api import global_config, signin
from paddock.api.access import OPERATORS, PEOPLE
from paddock.api.errors import ApiError
from paddock.api.global_config import SETTINGS
from paddock.api.tokens import Caller
from paddock.config import PREFIX, known_settings, tables_of
from paddock.web import standing
from paddock.web.frame import back, field, form, page, plane_of, render
from paddock.web.pages import tokens

LEVELS = ("broken", "warning", "ok")
# Where to look on, for a finding of `paddock doctor`.
PLACES = {
    "workers": ("/workers", "Workers"),
    "kinds": ("/kinds", "Kinds"),
    "schedules": ("/schedules", "Schedules"),
    "drain": ("/settings", "Drain mode"),
    "backlog": ("/jobs?status=pending", "Waiting jobs"),
    "object store": ("/settings/config", "Configuration"),
}


def routes() -> list[Route]:
    return [
        page("/settings", show, PEOPLE),
        form("/settings/link", make_link, PEOPLE),
        form("/settings/drain", drain, OPERATORS),
        form("/settings/config", change, OPERATORS),
        page("/settings/config", show_config, OPERATORS),
        page("/settings/doctor", show_doctor, OPERATORS),
        *tokens.routes(),
    ]


async def show(request: Request, caller: Caller) -> Response:
    return await _show(request, caller)


async def _show(
    request: Request, caller: Caller, *, link: str | None = None, wrong: tuple[str, str, str] | None = None
) -> Response:
    """`wrong`: the setting that was refused, what it should have been, and why not."""
    db = plane_of(request).core.db
    installation = await global_config.read(db) if caller.operator else {}
    return await render(
        request,
        caller,
        "settings.html",
        status=200 if wrong is None else 422,
        installation={name: {**setting, **_input(name)} for name, setting in installation.items()},
        link=link,
        wrong=wrong,
    )


def _input(name: str) -> dict[str, Any]:
    """How a setting is typed: as text, as a number, or as JSON. One that may be none is so when its field is empty."""
    schema = SETTINGS[name].type.json_schema()
    [schema, *others] = [one for one in schema.get("anyOf", [schema]) if one != {"type": "null"}]
    if others:
        schema = {}
    typed = {"string": "text", "integer": "number", "number": "number", "boolean": "switch"}
    return {"input": typed.get(str(schema.get("type")), "json"), "most": schema.get("maxLength", 10_000)}


async def make_link(request: Request, caller: Caller) -> Response:
    code = await signin.create_link(plane_of(request).tokens, caller.token_id)
    return await _show(request, caller, link=signin.own_address(request) + signin.link_path(code))


async def drain(request: Request, caller: Caller) -> Response:
    enabled = await field(request, "enabled") == "on"
    reason = await field(request, "reason") or None
    await plane_of(request).core.drain(enabled, actor=caller.actor, reason=reason)
    standing.forget(request)
    said = "New work is refused; what is queued goes on." if enabled else "New work is accepted again."
    return back(request, "/settings", said)


async def change(request: Request, caller: Caller) -> Response:
    """One setting at a time; an empty text is the default again."""
    name, text = await field(request, "name"), await field(request, "value")
    reason = await field(request, "reason") or None
    try:
        value = _value(name, text)
        await global_config.write(plane_of(request).core.db, {name: value}, actor=caller.actor, reason=reason)
    except ApiError as error:
        if name not in SETTINGS:
            raise
        return await _show(request, caller, wrong=(name, text, error.details["fields"][0]["message"]))
    standing.forget(request)
    return back(request, "/settings", f"{name} was changed." if text else f"{name} was reset to its default.")


def _value(name: str, text: str) -> Any:
    if not text:
        return None
    if name not in SETTINGS or _input(name)["input"] == "text":
        return text
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return text  # its type says what is wrong with it


async def show_config(request: Request, caller: Caller) -> Response:
    explained = {item.name: item for item in plane_of(request).config.explain()}
    tables = tables_of(known_settings().values())
    groups = {table: [explained[name] for name in names] for table, names in tables.items()}
    set_here = [item for item in explained.values() if item.source != "default"]
    only_set = request.query_params.get("only") == "set"
    if only_set:
        groups = {table: [item for item in items if item in set_here] for table, items in groups.items()}
    return await render(
        request,
        caller,
        "config.html",
        groups={table: items for table, items in groups.items() if items},
        count=len(explained),
        set_count=len(set_here),
        only_set=only_set,
        prefix=PREFIX,
    )


async def show_doctor(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    began = time.monotonic()
    found = await doctor.server_checks(plane.core, plane.config)
    found.sort(key=lambda finding: LEVELS.index(finding.level))
    counts = {level: sum(finding.level == level for finding in found) for level in LEVELS}
    return await render(
        request,
        caller,
        "doctor.html",
        findings=[asdict(finding) for finding in found],
        counts=counts,
        places=PLACES,
        took=time.monotonic() - began,
    )
