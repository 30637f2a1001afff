"""Jobs that make themselves due: operators have all of them, analysts their own."""

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso, parse
from paddock.api.errors import not_found
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import EXAMPLE_ID, WHOLE_EXAMPLE, WholeJob, job_json, location
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, read_cursor, write_cursor
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.routes.changing import Reason
from paddock.api.routes.submitting import Tag
from paddock.api.services.schedules import change, make, run
from paddock.jobs import schedules
from paddock.jobs.model import LOW, MAX_TAGS, NORMAL, URGENT, Ordered
from paddock.jobs.schedule_runs import Run, last_runs
from paddock.jobs.schedules import NewSchedule, Schedule
from paddock.log import masked

router = guarded_router("schedules", PEOPLE)

Text = Annotated[str, StringConstraints(min_length=1, max_length=200)]

SCHEDULE_EXAMPLE: dict[str, Any] = {
    "name": "nightly-probe",
    "kind": "probe",
    "payload": {"turns": 1},
    "every": None,
    "cron": "30 2 * * *",
    "timezone": "Europe/Berlin",
    "priority": 3,
    "tags": [],
    "owner": "grace",
    "enabled": True,
    "internal": False,
    "next_at": "2026-11-16T01:30:00Z",
    "last_at": "2026-11-15T01:30:00Z",
    "last_job_id": EXAMPLE_ID,
    "skipped": 0,
    "last_problem": None,
    "last_runs": [
        {
            "job_id": EXAMPLE_ID,
            "outcome_job_id": EXAMPLE_ID,
            "made": None,
            "status": "completed",
            "error": None,
            "ended_at": "2026-11-15T01:30:02Z",
            "links": {"job": f"/api/jobs/{EXAMPLE_ID}", "outcome": f"/api/jobs/{EXAMPLE_ID}"},
        }
    ],
    "created_at": "2026-11-01T09:00:00Z",
    "links": {"self": "/api/schedules/nightly-probe", "jobs": "/api/jobs?schedule=nightly-probe"},
}


class ScheduleBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        title="NewSchedule",
        json_schema_extra={
            "examples": [{"name": "nightly-probe", "kind": "probe", "cron": "30 2 * * *", "timezone": "Europe/Berlin"}]
        },
    )

    name: Text
    kind: Text
    payload: dict[str, Any] = Field(default_factory=dict)
    every: Text | None = Field(default=None, description="An interval: PT15M, 15m, 1h.")
    cron: Text | None = Field(default=None, description="Either this or `every`.")
    timezone: Text = "UTC"
    priority: int = Field(default=NORMAL, ge=URGENT, le=LOW, strict=True)
    tags: list[Tag] = Field(default_factory=list, max_length=MAX_TAGS)
    enabled: bool = True


class ScheduleChanges(BaseModel):
    """Only what is named changes. To go from `every` to `cron`, set the one and null the other."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"enabled": False}]})

    kind: Text = ""
    payload: dict[str, Any] = Field(default_factory=dict)
    every: Text | None = None
    cron: Text | None = None
    timezone: Text = ""
    priority: int = Field(default=NORMAL, ge=URGENT, le=LOW, strict=True)
    tags: list[Tag] = Field(default_factory=list, max_length=MAX_TAGS)
    enabled: bool = True


@router.get("/api/schedules", summary="Schedules, by name", responses=documented_page(SCHEDULE_EXAMPLE))
async def list_schedules(
    plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    after = None if cursor is None else read_cursor(cursor, str)
    found = await schedules.page(
        plane.core.db, after=after, limit=limit, owner=caller.scope, include_internal=caller.operator
    )
    following = write_cursor(found[-1].name) if len(found) == limit else None
    runs = await last_runs(plane.core.db, plane.core.kinds, [schedule.name for schedule in found])
    return page([_schedule_json(schedule, runs[schedule.name]) for schedule in found], following)


@router.post(
    "/api/schedules",
    status_code=201,
    summary="Make a schedule",
    responses=documented(SCHEDULE_EXAMPLE, status=201, description="Made."),
)
async def create_schedule(body: ScheduleBody, plane: ThePlane, caller: Asking) -> Response:
    new = NewSchedule(
        **body.model_dump(exclude={"every"}),
        every=None if body.every is None else parse(body.every, "every"),
        owner=caller.owner,
    )
    made = await make(plane, caller, new)
    return answer(_schedule_json(made), 201, {"Location": f"/api/schedules/{made.name}"})


@router.get("/api/schedules/{name}", summary="One schedule", responses=documented(SCHEDULE_EXAMPLE))
async def get_schedule(name: str, plane: ThePlane, caller: Asking) -> Response:
    found = await schedules.get(plane.core.db, name, caller.scope)
    if found is None:
        raise not_found("schedule")
    return answer(await _answered(plane, found))


@router.patch("/api/schedules/{name}", summary="Change a schedule", responses=documented(SCHEDULE_EXAMPLE))
async def change_schedule(name: str, body: ScheduleChanges, plane: ThePlane, caller: Asking) -> Response:
    before = await schedules.get(plane.core.db, name, caller.scope)
    if before is None:
        raise not_found("schedule")
    changes = body.model_dump(include=body.model_fields_set)
    if body.every is not None:
        changes["every"] = parse(body.every, "every")
    return answer(await _answered(plane, await change(plane, caller, before, changes)))


@router.delete("/api/schedules/{name}", summary="Delete a schedule", responses=documented(SCHEDULE_EXAMPLE))
async def delete_schedule(name: str, plane: ThePlane, caller: Asking) -> Response:
    found = await schedules.get(plane.core.db, name, caller.scope)
    if found is None:
        raise not_found("schedule")
    shown = await _answered(plane, found)
    await schedules.delete(plane.core, name, actor=caller.actor, scope=caller.scope)
    return answer(shown)


@router.post(
    "/api/schedules/{name}/run",
    status_code=202,
    summary="Run it now",
    responses=documented(WHOLE_EXAMPLE, WholeJob, status=202, description="The job it made."),
)
async def run_schedule(
    name: str, plane: ThePlane, caller: Asking, body: Reason | None = None, key: KeyHeader = None
) -> Response:
    reason = None if body is None else body.reason
    idempotency = key_of(caller, f"POST /api/schedules/{name}/run", key, reason)
    job = await run(plane, caller, name, reason=reason, idempotency=idempotency)
    return answer(job_json(job, plane.core.kinds), 202, {"Location": location(job.id)})


async def _answered(plane: ControlPlane, schedule: Schedule) -> dict[str, Any]:
    runs = await last_runs(plane.core.db, plane.core.kinds, [schedule.name])
    return _schedule_json(schedule, runs[schedule.name])


def _schedule_json(schedule: Schedule, runs: Sequence[Run] = ()) -> dict[str, Any]:
    own = f"/api/schedules/{schedule.name}"
    return {
        "name": schedule.name,
        "kind": schedule.kind,
        "payload": masked(schedule.payload),
        "every": iso(schedule.every),
        "cron": schedule.cron,
        "timezone": schedule.timezone,
        "priority": schedule.priority,
        "tags": schedule.tags,
        "owner": schedule.owner,
        "enabled": schedule.enabled,
        "internal": schedule.internal,
        "next_at": schedule.next_at,
        "last_at": schedule.last_at,
        "last_job_id": schedule.last_job_id,
        "skipped": schedule.skipped,
        "last_problem": schedule.last_problem,
        "last_runs": [_run_json(run) for run in runs],
        "created_at": schedule.created_at,
        "links": {"self": own, "jobs": f"/api/jobs?schedule={schedule.name}"},
    }


def _run_json(run: Run) -> dict[str, Any]:
    """`status` and `error` are those of the work itself, not of the job that ordered it. There is no `outcome_job_id` where the
    work is no single job: `links.outcome` leads to it."""
    made = None if run.made is None else dict([run.made])
    shown: dict[str, Any] = {"job_id": run.first, "outcome_job_id": None, "made": made, "status": None, "error": None}
    links = {"job": location(run.first)}
    last = run.outcome
    if last is None:
        return shown | {"ended_at": None, "links": links}
    error = None if last.error_code is None else {"code": last.error_code, "message": last.error_message}
    links["outcome"] = f"/api{last.path}" if isinstance(last, Ordered) else location(last.id)
    job = None if isinstance(last, Ordered) else last.id
    ended = {"outcome_job_id": job, "status": last.status, "error": error, "ended_at": run.ended_at}
    return shown | ended | {"links": links}
