"""Jobs that make themselves due."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso, parse
from paddock.api.errors import ApiError, not_found
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import EXAMPLE_ID, WHOLE_EXAMPLE, WholeJob, job_json, location
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, read_cursor, write_cursor
from paddock.api.plane import Plane, ThePlane
from paddock.api.routes.submitting import Tag, check_kind
from paddock.api.tokens import Caller
from paddock.jobs import schedules
from paddock.jobs.model import LOW, MAX_TAGS, NORMAL, URGENT
from paddock.jobs.schedules import NewSchedule, Schedule
from paddock.log import masked

router = guarded_router("schedules")

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
    found = await schedules.page(plane.core.db, after=after, limit=limit)
    following = write_cursor(found[-1].name) if len(found) == limit else None
    return page([_shown(schedule) for schedule in found], following)


@router.post(
    "/api/schedules",
    status_code=201,
    summary="Make a schedule",
    responses=documented(SCHEDULE_EXAMPLE, status=201, description="Made."),
)
async def create_schedule(body: ScheduleBody, plane: ThePlane, caller: Asking) -> Response:
    check_kind(plane, caller, body.kind, body.payload)
    new = NewSchedule(
        **body.model_dump(exclude={"every"}),
        every=None if body.every is None else parse(body.every, "every"),
        owner=caller.owner,
    )
    made = await schedules.create(plane.core, new, actor=caller.actor)
    return answer(_shown(made), 201, {"Location": f"/api/schedules/{made.name}"})


@router.get("/api/schedules/{name}", summary="One schedule", responses=documented(SCHEDULE_EXAMPLE))
async def get_schedule(name: str, plane: ThePlane, caller: Asking) -> Response:
    found = await schedules.get(plane.core.db, name)
    if found is None:
        raise not_found("schedule")
    return answer(_shown(found))


@router.patch("/api/schedules/{name}", summary="Change a schedule", responses=documented(SCHEDULE_EXAMPLE))
async def change_schedule(name: str, body: ScheduleChanges, plane: ThePlane, caller: Asking) -> Response:
    changes = body.model_dump(include=body.model_fields_set)
    if changes.keys() & {"kind", "payload"}:
        before = await schedules.get(plane.core.db, name)
        if before is None:
            raise not_found("schedule")
        check_kind(plane, caller, changes.get("kind", before.kind), changes.get("payload", before.payload))
        check_owner(plane, caller, before, changes.get("kind", before.kind))
    if body.every is not None:
        changes["every"] = parse(body.every, "every")
    changed = await schedules.update(plane.core, name, changes, actor=caller.actor)
    return answer(_shown(changed))


def check_owner(plane: Plane, caller: Caller, schedule: Schedule, kind: str) -> None:
    """It runs in its owner's name: what uses an engine is theirs alone to change."""
    known = plane.core.kinds.get(kind)
    if known is not None and known.uses is not None and schedule.owner != caller.owner:
        raise ApiError(
            403,
            "not_your_schedule",
            f"The schedule runs in the name of {schedule.owner}; only they may change what it does.",
            hint="Make a schedule of your own, or switch this one off.",
        )


@router.delete("/api/schedules/{name}", summary="Delete a schedule", responses=documented(SCHEDULE_EXAMPLE))
async def delete_schedule(name: str, plane: ThePlane, caller: Asking) -> Response:
    found = await schedules.get(plane.core.db, name)
    if found is None:
        raise not_found("schedule")
    await schedules.delete(plane.core, name, actor=caller.actor)
    return answer(_shown(found))


@router.post(
    "/api/schedules/{name}/run",
    status_code=202,
    summary="Run it now",
    responses=documented(WHOLE_EXAMPLE, WholeJob, status=202, description="The job it made."),
)
async def run_schedule(name: str, plane: ThePlane, caller: Asking, key: KeyHeader = None) -> Response:
    idempotency = key_of(caller, f"POST /api/schedules/{name}/run", key, None)
    job = await schedules.run(plane.core, name, actor=caller.actor, idempotency=idempotency)
    return answer(job_json(job, plane.core.kinds), 202, {"Location": location(job.id)})


def _shown(schedule: Schedule) -> dict[str, Any]:
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
        "created_at": schedule.created_at,
        "links": {"self": own, "jobs": f"/api/jobs?schedule={schedule.name}"},
    }
