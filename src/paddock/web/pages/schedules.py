"""Jobs that make themselves due: when next, how the last run went, what they made; run now, on and off, make, change.

Operators have all of them, analysts their own. The page of an export, say, leads to the form with what it would run
filled in: `/schedules/-/new?of=export:<id>`."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.amounts import listed
from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError, not_found
from paddock.api.services import schedules as scheduling
from paddock.api.tokens import Caller
from paddock.jobs import reading, schedules, timing
from paddock.jobs.errors import Refused
from paddock.jobs.figures.overviews import SQL as OVERVIEWS
from paddock.jobs.filtering import Filter
from paddock.jobs.kinds import Kinds, Trigger
from paddock.jobs.schedule_runs import Run, last_runs, runs_of
from paddock.jobs.schedules import Schedule
from paddock.log import masked
from paddock.web import words
from paddock.web.form_problems import named_fields
from paddock.web.frame import back, clean, field, form, page, plane_of, render
from paddock.web.planning import Planned, planned_of
from paddock.web.schedule_form import (
    DAYS,
    Form,
    changes_to,
    filled,
    form_for,
    form_of,
    new_schedule,
    timing_of,
    values_of,
)

MOST = 500
MOST_RUNS = 20
FORESEEN = 5


def routes() -> list[Route]:
    # "-" is the name of no schedule.
    return [
        page("/schedules", show, PEOPLE),
        form("/schedules", create, PEOPLE),
        page("/schedules/-/new", show_new, PEOPLE),
        page("/schedules/-/times", show_times, PEOPLE),
        page("/schedules/{name}", show_one, PEOPLE),
        page("/schedules/{name}/edit", show_edit, PEOPLE),
        form("/schedules/{name}/edit", change, PEOPLE),
        form("/schedules/{name}/run", run, PEOPLE),
        form("/schedules/{name}/switch", switch, PEOPLE),
        form("/schedules/{name}/delete", delete, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    kinds = plane_of(request).core.kinds
    every = await schedules.page(db, limit=MOST, owner=caller.scope, include_internal=caller.operator)
    found = [schedule for schedule in every if _trigger(kinds, schedule) is None]
    runs = await last_runs(db, kinds, [schedule.name for schedule in found])
    own = [schedule for schedule in found if not schedule.internal]
    return await render(
        request,
        caller,
        "schedules.html",
        schedules=own,
        internal=[schedule for schedule in found if schedule.internal],
        runs=runs,
        summary=_summary(own, runs),
    )


def _trigger(kinds: Kinds, schedule: Schedule) -> Trigger | None:
    """Where it is run by hand, of those that have a page of their own."""
    kind = kinds.get(schedule.kind)
    return None if kind is None else kind.trigger


async def show_one(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    schedule = await _schedule(request, caller)
    made = await reading.page(db, Filter(schedule=schedule.name, include_housekeeping=True), limit=MOST_RUNS)
    runs = await runs_of(db, plane_of(request).core.kinds, [job.id for job in made.jobs])
    first = schedule.next_at
    times = _foreseen(schedule.every, schedule.cron, schedule.timezone, first) if schedule.enabled and first else []
    return await render(
        request,
        caller,
        "schedule.html",
        schedule=schedule,
        trigger=_trigger(plane_of(request).core.kinds, schedule),
        payload=masked(schedule.payload),
        jobs=[job for job in made.jobs if job.owner == schedule.owner],  # the name may have been another's before
        runs=runs,
        more=made.next_cursor is not None,
        times=times,
    )


async def show_new(request: Request, caller: Caller) -> Response:
    of = clean(request.query_params.get("of") or "")
    planned = await planned_of(plane_of(request), caller, of)
    if planned is not None:
        return await _show_form(request, caller, form_for(planned, of), None)
    return await _show_form(request, caller, Form(kind=request.query_params.get("kind") or ""), None)


async def create(request: Request, caller: Caller) -> Response:
    asked = filled(dict(await request.form()))
    try:
        values = values_of(asked)
        made = await scheduling.make(plane_of(request), caller, new_schedule(asked, values, caller.owner))
    except (ApiError, Refused) as error:
        return await _show_form(request, caller, asked.refused(error), None)
    return back(request, f"/schedules/{made.name}", f"{made.name} was created.")


async def show_edit(request: Request, caller: Caller) -> Response:
    schedule = await _schedule(request, caller)
    return await _show_form(request, caller, form_of(schedule), schedule)


async def change(request: Request, caller: Caller) -> Response:
    schedule = await _schedule(request, caller)
    asked = filled({**dict(await request.form()), "name": schedule.name})
    try:
        values = values_of(asked)
        changes = changes_to(schedule, values)
        if changes:
            await scheduling.change(plane_of(request), caller, schedule, changes)
    except (ApiError, Refused) as error:
        return await _show_form(request, caller, asked.refused(error), schedule)
    said = f"{schedule.name} was changed: {listed(sorted(changes))}." if changes else "Nothing was changed."
    return back(request, f"/schedules/{schedule.name}", said)


async def show_times(request: Request, caller: Caller) -> Response:
    """A piece of the form: the next times of what is written into it, or what is wrong with that."""
    asked = filled(dict(request.query_params))
    times, problem = await _preview(request, asked)
    return await render(request, caller, "schedule_times.html", times=times, zone=asked.timezone, problem=problem)


async def run(request: Request, caller: Caller) -> Response:
    job = await scheduling.run(plane_of(request), caller, request.path_params["name"])
    return back(request, f"/jobs/{job.id}", f"{request.path_params['name']} created this job.")


async def switch(request: Request, caller: Caller) -> Response:
    schedule, enabled = await _schedule(request, caller), await field(request, "enabled") == "on"
    name = schedule.name
    await scheduling.change(plane_of(request), caller, schedule, {"enabled": enabled})
    to = f"/schedules/{name}" if await field(request, "from") == "schedule" else "/schedules"
    return back(request, to, f"{name} is {'enabled' if enabled else 'disabled'}.")


async def delete(request: Request, caller: Caller) -> Response:
    name = request.path_params["name"]
    await schedules.delete(plane_of(request).core, name, actor=caller.actor, scope=caller.scope)
    return back(request, "/schedules", f"{name} was deleted; its jobs stay.")


async def _schedule(request: Request, caller: Caller) -> Schedule:
    found = await schedules.get(plane_of(request).core.db, request.path_params["name"], caller.scope)
    if found is None:
        raise not_found("schedule")
    return found


async def _show_form(request: Request, caller: Caller, asked: Form, schedule: Schedule | None) -> Response:
    times, _ = await _preview(request, asked)
    return await render(
        request,
        caller,
        "schedule_form.html",
        status=422 if asked.problems else 200,
        form=asked,
        schedule=schedule,
        planned=None if schedule is not None else await _still_planned(request, caller, asked.of),
        days=DAYS,
        kinds=_kinds(request, caller, asked.kind),
        zones=_zones(),
        times=times,
        zone=asked.timezone,
        problem=None,
    )


@cache
def _zones() -> list[str]:
    """Read from some hundred files."""
    return sorted(available_timezones())


async def _still_planned(request: Request, caller: Caller, of: str) -> Planned | None:
    """What it was opened for may have gone since; the form has all that it needs."""
    try:
        return await planned_of(plane_of(request), caller, of)
    except (ApiError, Refused):
        return None


def _kinds(request: Request, caller: Caller, chosen: str) -> list[str]:
    return sorted({*scheduling.schedulable(plane_of(request), caller), *([chosen] if chosen else [])})


async def _preview(request: Request, asked: Form) -> tuple[list[datetime], str | None]:
    try:
        every, cron = timing_of(asked)
        now = await plane_of(request).core.db.fetchval(OVERVIEWS["clock"])
        first = timing.checked(every=every, cron=cron, timezone=asked.timezone, now=now)
    except (ApiError, Refused) as error:
        return [], next((message for _, message in named_fields(error)), error.message)
    return _foreseen(every, cron, asked.timezone, first), None


def _foreseen(every: timedelta | None, cron: str | None, zone: str, first: datetime) -> list[datetime]:
    """In the schedule's own zone: that is what its times are written in."""
    times = timing.upcoming(every=every, cron=cron, timezone=zone, first=first, count=FORESEEN)
    return [at.astimezone(ZoneInfo(zone)) for at in times]


def _summary(found: Sequence[Schedule], runs: Mapping[str, Sequence[Run]]) -> str | None:
    if not found:
        return None
    on = [schedule for schedule in found if schedule.enabled]
    refused = [schedule.name for schedule in on if schedule.last_problem]
    failed = [
        schedule.name
        for schedule in on
        if (run := next((run for run in runs[schedule.name] if run.ended), None)) is not None and run.failed
    ]
    parts = [
        f"{len(on)} of {words.plural(len(found), 'schedule')} enabled",
        f"the last run of {listed(failed)} failed" if failed else "",
        f"{listed(refused)} could not create a job when last due" if refused else "",
    ]
    return "; ".join(part for part in parts if part) + "."
