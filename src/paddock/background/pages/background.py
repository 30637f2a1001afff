"""Background jobs: whether each ran when it should, what it found, and *Run now*."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.amounts import listed
from paddock.api.access import OPERATORS
from paddock.api.errors import not_found
from paddock.api.tokens import Caller
from paddock.background import records, service
from paddock.background.commands.ops import counts
from paddock.background.declared import BY_NAME
from paddock.background.records import State
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Job
from paddock.web.frame import back, field, form, page, plane_of, regions, render

RUNS_OF_ONE = 10


@dataclass(frozen=True, slots=True)
class Row:
    state: State
    about: str
    found: str


@dataclass(frozen=True, slots=True)
class PassRow:
    job: Job
    found: str


def routes() -> list[Route]:
    return [
        page("/background", show, OPERATORS),
        page("/background/{name}", show_one, OPERATORS),
        form("/background/{name}/run", run, OPERATORS),
    ]


async def show(request: Request, caller: Caller) -> Response:
    found = await records.states(plane_of(request).core.db)
    return await render(
        request, caller, "background.html", rows=[_row(state) for state in found], summary=summary(found)
    )


async def show_one(request: Request, caller: Caller) -> Response:
    db, name = plane_of(request).core.db, request.path_params["name"]
    state = next((state for state in await records.states(db) if state.name == name), None)
    if state is None:
        raise not_found("background job")
    runs: list[PassRow] = []
    if not (asked := regions(request)) or "job" in asked:
        made = await reading.page(db, Filter(kind=name, include_housekeeping=True), limit=RUNS_OF_ONE)
        runs = [PassRow(job, _findings_of(job)) for job in made.jobs]
    symptom = BY_NAME[state.name].symptom
    return await render(request, caller, "background_job.html", row=_row(state), runs=runs, symptom=symptom)


async def run(request: Request, caller: Caller) -> Response:
    """With `engine` it is a refresh of that one."""
    name, plane = request.path_params["name"], plane_of(request)
    reason, engine = await field(request, "reason"), await field(request, "engine")
    if engine and name == "schema_cache":
        await service.refresh(plane, engine, actor=caller.actor, reason=reason)
    else:
        force = await field(request, "force") == "on"
        await service.trigger(plane.core, name, actor=caller.actor, reason=reason, force=force)
    return back(request, f"/background/{name}", f"A pass of {name} is queued; it runs as soon as none of it does.")


def _row(state: State) -> Row:
    return Row(state, BY_NAME[state.name].about if state.name in BY_NAME else "", counts(state.found))


def _findings_of(job: Job) -> str:
    result: Any = job.result
    return counts(result.get("found")) if isinstance(result, dict) else ""


def summary(found: Sequence[State]) -> str:
    if not found:
        return "No background job has started yet."
    off = [state.name for state in found if not state.enabled]
    unhealthy = [state.name for state in found if not state.healthy]
    never = [state.name for state in found if state.last_success_at is None and state.enabled and state.healthy]
    parts = [
        f"{listed(unhealthy)} {'fails' if len(unhealthy) == 1 else 'fail'}" if unhealthy else "",
        f"{listed(off)} {'is' if len(off) == 1 else 'are'} switched off" if off else "",
        f"{listed(never)} {'has' if len(never) == 1 else 'have'} not run yet" if never else "",
    ]
    said = "; ".join(part for part in parts if part)
    return f"{said[0].upper()}{said[1:]}." if said else f"All {len(found)} run when they should."
