"""Engines: which there are, whether they answer, and what is in them, level by level. A worker asks for us."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError, not_found
from paddock.api.tokens import Caller
from paddock.exports.model import Action
from paddock.exports.pages.engine_choice import Choice, engines_of, role_for, roles_of
from paddock.exports.service import AskBody, ask_engine, browse_engine
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject
from paddock.web.frame import clean, page, plane_of, render

MOST_NAMES = 2_000
LEVELS: Sequence[tuple[Action, str]] = (("catalogs", "catalog"), ("schemas", "schema"), ("tables", "table"))
LONGEST = {"catalog": 200, "schema": 200, "table": 500}


def routes() -> list[Route]:
    return [page("/engines", show, PEOPLE), page("/engines/{engine}", browse, PEOPLE)]


@dataclass(frozen=True, slots=True)
class EngineQuestion:
    """What an address asks of an engine, as the form of its role shows it."""

    engine: str
    role: str = ""
    problems: dict[str, str] = field(default_factory=dict)


async def show(request: Request, caller: Caller) -> Response:
    """With `check` one of them is asked whether it works."""
    engines = engines_of(plane_of(request).config, caller)
    name, role = (clean(request.query_params.get(key) or "") for key in ("check", "role"))
    findings: list[JsonObject] = []
    problem: ApiError | Refused | None = None
    if name:
        engine = _of(engines, name)
        try:
            findings = (await _ask(request, caller, engine, "check", AskBody(), role))["findings"]
        except (ApiError, Refused) as error:
            problem = error
    return await render(
        request,
        caller,
        "engines.html",
        engines=engines,
        checked=name,
        asked=EngineQuestion(name, role),
        roles=roles_of(caller),
        findings=findings,
        problem=problem,
    )


async def browse(request: Request, caller: Caller) -> Response:
    engines = engines_of(plane_of(request).config, caller)
    engine = _of(engines, request.path_params["engine"])
    place = {level: clean(request.query_params.get(level) or "")[: LONGEST[level]] for level in LONGEST}
    asked = EngineQuestion(engine.name, clean(request.query_params.get("role") or ""))
    level = _level(place)
    answer: dict[str, Any] = {"names": [], "columns": []}
    problem: ApiError | Refused | None = None
    if asked.role or not engine.requires_role:
        body = AskBody.model_validate({name: text or None for name, text in place.items()})
        try:
            answer |= await _ask(request, caller, engine, level, body, asked.role)
        except (ApiError, Refused) as error:
            problem = error
    else:
        asked = replace(asked, role=(roles_of(caller) or [""])[0])
    wanted = clean(request.query_params.get("q") or "").lower()
    names = [name for name in answer["names"] if wanted in name.lower()]
    return await render(
        request,
        caller,
        "engine.html",
        engine=engine,
        asked=asked,
        needs_role=engine.requires_role and "role" not in request.query_params,
        roles=roles_of(caller),
        at=place,
        level=level,
        below=next((name for found, name in LEVELS if found == level), None),
        names=names[:MOST_NAMES],
        total=len(answer["names"]),
        more=max(0, len(names) - MOST_NAMES),
        wanted=wanted,
        columns=answer["columns"],
        as_of=answer.get("as_of"),
        problem=problem,
    )


def _level(place: dict[str, str]) -> Action:
    return next((level for level, name in LEVELS if not place[name]), "columns")


def _of(engines: Sequence[Choice], name: str) -> Choice:
    found = next((engine for engine in engines if engine.name == name), None)
    if found is None:
        raise not_found("engine")
    return found


async def _ask(
    request: Request, caller: Caller, engine: Choice, action: Action, body: AskBody, role: str
) -> JsonObject:
    sent = role_for([engine], engine.name, role)
    if action == "check":
        return await ask_engine(plane_of(request), caller, engine.name, action, body, sent)
    live = request.query_params.get("live") == "true"
    return await browse_engine(plane_of(request), caller, engine.name, action, body, sent, live=live)
