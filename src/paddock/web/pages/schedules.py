"""Jobs that make themselves due: when next, how the last run went, what they made; run now, on and off, make, change."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo, available_timezones

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.errors import ApiError, not_found
from paddock.api.routes.schedules import check_owner
from paddock.api.routes.submitting import check_kind
from paddock.api.tokens import Caller
from paddock.jobs import reading, schedules, timing
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.kinds import Kinds
from paddock.jobs.model import Job
from paddock.jobs.overviews import SQL as OVERVIEWS
from paddock.jobs.schedules import Schedule
from paddock.log import masked
from paddock.web import words
from paddock.web.frame import back, field, form, page, plane_of, render
from paddock.web.schedule_form import Form, changes_to, filled, form_of, new_schedule, timing_of, told, values_of

MOST = 500
MOST_RUNS = 20
FORESEEN = 5


def routes() -> list[Route]:
    # "-" is the name of no schedule.
    return [
        page("/schedules", show),
        form("/schedules", create),
        page("/schedules/-/new", show_new),
        page("/schedules/-/times", show_times),
        page("/schedules/{name}", show_one),
        page("/schedules/{name}/edit", show_edit),
        form("/schedules/{name}/edit", change),
        form("/schedules/{name}/run", run),
        form("/schedules/{name}/switch", switch),
        form("/schedules/{name}/delete", delete),
    ]


async def show(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    found = await schedules.page(db, limit=MOST)
    last = [schedule.last_job_id for schedule in found if schedule.last_job_id is not None]
    jobs: Mapping[object, Job] = {job.id: job for job in await reading.jobs(db, last)} if last else {}
    own = [schedule for schedule in found if not schedule.internal]
    return await render(
        request,
        caller,
        "schedules.html",
        schedules=own,
        internal=[schedule for schedule in found if schedule.internal],
        jobs=jobs,
        summary=_summary(own, jobs),
    )


async def show_one(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    schedule = await _schedule(request)
    runs = await reading.page(db, Filter(schedule=schedule.name, include_housekeeping=True), limit=MOST_RUNS)
    first = schedule.next_at
    times = _foreseen(schedule.every, schedule.cron, schedule.timezone, first) if schedule.enabled and first else []
    return await render(
        request,
        caller,
        "schedule.html",
        schedule=schedule,
        payload=masked(schedule.payload),
        runs=runs.jobs,
        more=runs.next_cursor is not None,
        times=times,
    )


async def show_new(request: Request, caller: Caller) -> Response:
    return await _show_form(request, caller, Form(kind=request.query_params.get("kind") or ""), None)


async def create(request: Request, caller: Caller) -> Response:
    core = plane_of(request).core
    asked = filled(dict(await request.form()))
    try:
        values = values_of(asked)
        check_kind(plane_of(request), caller, asked.kind, values["payload"])
        made = await schedules.create(core, new_schedule(asked, values, caller.owner), actor=caller.actor)
    except (ApiError, Refused) as error:
        return await _show_form(request, caller, asked.refused(error), None)
    return back(request, f"/schedules/{made.name}", f"{made.name} is made.")


async def show_edit(request: Request, caller: Caller) -> Response:
    schedule = await _schedule(request)
    return await _show_form(request, caller, form_of(schedule), schedule)


async def change(request: Request, caller: Caller) -> Response:
    schedule = await _schedule(request)
    asked = filled({**dict(await request.form()), "name": schedule.name})
    try:
        values = values_of(asked)
        changes = changes_to(schedule, values)
        if changes.keys() & {"kind", "payload"}:
            check_kind(plane_of(request), caller, asked.kind, values["payload"])
            check_owner(plane_of(request), caller, schedule, asked.kind)
        if changes:
            await schedules.update(plane_of(request).core, schedule.name, changes, actor=caller.actor)
    except (ApiError, Refused) as error:
        return await _show_form(request, caller, asked.refused(error), schedule)
    said = f"{schedule.name} is changed: {words.listed(sorted(changes))}." if changes else "Nothing was changed."
    return back(request, f"/schedules/{schedule.name}", said)


async def show_times(request: Request, caller: Caller) -> Response:
    """A piece of the form: the next times of what is written into it, or what is wrong with that."""
    asked = filled(dict(request.query_params))
    times, problem = await _preview(request, asked)
    return await render(request, caller, "schedule_times.html", times=times, zone=asked.timezone, problem=problem)


async def run(request: Request, caller: Caller) -> Response:
    job = await schedules.run(plane_of(request).core, request.path_params["name"], actor=caller.actor)
    return back(request, f"/jobs/{job.id}", f"{request.path_params['name']} made this job.")


async def switch(request: Request, caller: Caller) -> Response:
    name, enabled = request.path_params["name"], await field(request, "enabled") == "on"
    await schedules.update(plane_of(request).core, name, {"enabled": enabled}, actor=caller.actor)
    to = f"/schedules/{name}" if await field(request, "from") == "schedule" else "/schedules"
    return back(request, to, f"{name} is switched {'on' if enabled else 'off'}.")


async def delete(request: Request, caller: Caller) -> Response:
    name = request.path_params["name"]
    await schedules.delete(plane_of(request).core, name, actor=caller.actor)
    return back(request, "/schedules", f"{name} is deleted; the jobs it made stay.")


async def _schedule(request: Request) -> Schedule:
    found = await schedules.get(plane_of(request).core.db, request.path_params["name"])
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
        kinds=_schedulable(plane_of(request).core.kinds, caller, asked.kind),
        zones=_zones(),
        times=times,
        zone=asked.timezone,
        problem=None,
    )


@cache
def _zones() -> list[str]:
    """Read from some hundred files."""
    return sorted(available_timezones())


def _schedulable(kinds: Kinds, caller: Caller, chosen: str) -> list[str]:
    found = {
        kind.name
        for kind in kinds
        if kind.submit is not None and (caller.role in kind.submit or caller.role == "admin")
    }
    return sorted(found | ({chosen} if chosen else set()))


async def _preview(request: Request, asked: Form) -> tuple[list[datetime], str | None]:
    try:
        every, cron = timing_of(asked)
        now = await plane_of(request).core.db.fetchval(OVERVIEWS["clock"])
        first = timing.checked(every=every, cron=cron, timezone=asked.timezone, now=now)
    except (ApiError, Refused) as error:
        return [], next((message for _, message in told(error)), error.message)
    return _foreseen(every, cron, asked.timezone, first), None


def _foreseen(every: timedelta | None, cron: str | None, zone: str, first: datetime) -> list[datetime]:
    """In the schedule's own zone: that is what its times are written in."""
    times = timing.upcoming(every=every, cron=cron, timezone=zone, first=first, count=FORESEEN)
    return [at.astimezone(ZoneInfo(zone)) for at in times]


def _summary(found: Sequence[Schedule], jobs: Mapping[object, Job]) -> str | None:
    if not found:
        return None
    on = [schedule for schedule in found if schedule.enabled]
    refused = [schedule.name for schedule in on if schedule.last_problem]
    failed = [
        schedule.name
        for schedule in on
        if (job := jobs.get(schedule.last_job_id)) is not None and job.status == "failed"
    ]
    parts = [
        f"{len(on)} of {words.plural(len(found), 'schedule')} on",
        f"the last run of {words.listed(failed)} failed" if failed else "",
        f"{words.listed(refused)} made no job when last due" if refused else "",
    ]
    return "; ".join(part for part in parts if part) + "."
