"""Making work: `POST /api/jobs` and its list form."""

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Header
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from paddock import tracing
from paddock.api.auth import Asking, authorize
from paddock.api.bodies import JsonRequest, is_json
from paddock.api.databases import databases_of
from paddock.api.documenting import documented
from paddock.api.errors import ApiError, invalid_field
from paddock.api.guard import GuardedRoute, guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import WHOLE_EXAMPLE, WholeJob, job_json, location
from paddock.api.pagination import answer
from paddock.api.parts import check_part, no_parts_of
from paddock.api.plane import Plane, ThePlane
from paddock.api.tokens import EVERYTHING, Caller, check_engine_role, may_use
from paddock.jobs import bulk
from paddock.jobs.enqueueing import MAX_BATCH
from paddock.jobs.kinds import Kind
from paddock.jobs.model import LOW, MAX_TAG_LENGTH, MAX_TAGS, NORMAL, URGENT, Job, NewJob


class SubmitRoute(GuardedRoute):
    """One job is submitted without FastAPI between the request and the model: that is a fifth of what it costs, and a
    worker waits for it. Whatever is odd about a request goes the usual way, which says what is wrong with it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = JsonRequest(scope, receive)
        role = request.headers.get("x-use-case-id")
        usual = scope["method"] != "POST" or not is_json(request.headers.get("content-type"))
        if usual or len(role or "") > MAX_ENGINE_ROLE:
            return await super().handle(scope, receive, send)
        caller = request.state.caller = await authorize(request, "POST", self.path)
        assert caller is not None, "nobody submits without a token"
        try:
            content = await request.body()
        except ClientDisconnect:
            return await super().handle(scope, receive, send)
        try:
            body = JobBody.model_validate(await request.json())
        except (ApiError, ValidationError):
            return await super().handle(scope, _again(content), send)
        key = request.headers.get("idempotency-key")
        response = await submit_job(request, body, request.app.state.plane, caller, key, role)
        await response(scope, receive, send)


def _again(content: bytes) -> Receive:
    async def receive() -> Message:
        return {"type": "http.request", "body": content, "more_body": False}

    return receive


router = guarded_router("jobs")
submitting = APIRouter(route_class=SubmitRoute, tags=["jobs"])

MAX_ENGINE_ROLE = 200
Tag = Annotated[str, StringConstraints(min_length=1, max_length=MAX_TAG_LENGTH)]
EngineRole = Annotated[
    str | None, Header(alias="X-Use-Case-Id", max_length=MAX_ENGINE_ROLE, description="The engine role to run under.")
]


class JobBody(BaseModel):
    """What to run. Lock, group, limits and roles come from the kind, never from here."""

    model_config = ConfigDict(
        extra="forbid",
        title="NewJob",
        json_schema_extra={"examples": [{"kind": "probe", "payload": {"turns": 3}, "priority": 3, "tags": ["demo"]}]},
    )

    kind: str = Field(min_length=1, max_length=200)
    payload: dict[str, Any] = Field(default_factory=dict)
    priority: int = Field(default=NORMAL, ge=URGENT, le=LOW, strict=True, description="1 urgent .. 4 low; 3 is normal.")
    run_at: AwareDatetime | None = Field(default=None, description="Not before this time.")
    tags: list[Tag] = Field(default_factory=list, max_length=MAX_TAGS)


class BatchBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        title="NewJobs",
        json_schema_extra={"examples": [{"jobs": [{"kind": "probe", "payload": {"turns": 1}}]}]},
    )

    jobs: list[JobBody] = Field(min_length=1, max_length=MAX_BATCH)


@submitting.post(
    "/api/jobs",
    status_code=202,
    summary="Submit a job",
    responses=documented(WHOLE_EXAMPLE, WholeJob, status=202, description="Accepted; `Location` is the job."),
)
async def submit_job(
    request: Request, body: JobBody, plane: ThePlane, caller: Asking, key: KeyHeader = None, role: EngineRole = None
) -> Response:
    check_engine_role(caller, role)
    new = new_job(plane, caller, body, role)
    idempotency = key_of(caller, "POST /api/jobs", key, [await request.json(), role])
    submitted = await plane.core.submit([new], idempotency=idempotency)
    [job] = submitted.jobs
    return answer(job_json(job, plane.core.kinds), 202, {"Location": location(job.id)})


router.routes.extend(submitting.routes)


@router.post(
    "/api/jobs/batch",
    status_code=202,
    summary="Submit up to 1,000 jobs in one transaction",
    responses=documented([WHOLE_EXAMPLE], list[WholeJob], status=202, description="All accepted, in their order."),
)
async def submit_batch(
    request: Request, body: BatchBody, plane: ThePlane, caller: Asking, key: KeyHeader = None, role: EngineRole = None
) -> Response:
    check_engine_role(caller, role)
    new = [new_job(plane, caller, item, role) for item in body.jobs]
    idempotency = key_of(caller, "POST /api/jobs/batch", key, [await request.json(), role])
    submitted = await plane.core.submit(new, idempotency=idempotency)
    return answer([job_json(job, plane.core.kinds) for job in submitted.jobs], 202)


def new_job(plane: Plane, caller: Caller, body: JobBody, role: str | None) -> NewJob:
    check_kind(plane, caller, body.kind, body.payload)
    if body.priority < NORMAL and not caller.operator:
        raise ApiError(
            403,
            "priority_not_allowed",
            "Priority above normal (1 and 2) needs the role ops.",
            hint="Leave priority out, or use 3 or 4.",
        )
    return NewJob(
        body.kind,
        body.payload,
        owner=caller.owner,
        role=role,
        priority=body.priority,
        run_at=_storable(body.run_at),
        tags=body.tags,
        traceparent=tracing.inject(),
    )


def check_kind(plane: Plane, caller: Caller, name: str, payload: Mapping[str, Any]) -> None:
    """An unknown kind is the core's to refuse. An internal one looks the same to those who may not know of it."""
    kind = plane.core.kinds.get(name)
    if kind is None:
        return
    if kind.submit is None:
        raise ApiError(403, "kind_internal", f"Kind '{name}' is internal: only Paddock itself makes such jobs.")
    if caller.role not in kind.submit and caller.role != "admin":
        raise ApiError(
            403,
            "kind_not_allowed",
            f"A token of role '{caller.role}' may not submit kind '{name}'.",
            details={"roles": sorted(kind.submit)},
        )
    check_uses(plane, caller, kind, payload)


def check_uses(plane: Plane, caller: Caller, kind: Kind, payload: Mapping[str, Any]) -> None:
    """What a payload names is checked like the same name in a route. A payload that is none is the core's to refuse."""
    if kind.uses is None:
        return
    try:
        uses = kind.uses(kind.payload.model_validate(payload))
    except ValidationError:
        return
    granted = {
        "engine": caller.engines,
        "destination": caller.destinations,
        "engine role": caller.engine_roles,
        "database": caller.databases.union(databases_of(plane.config, caller)),
    }
    for what, name in uses:
        if not may_use(granted[what], name):
            raise ApiError(
                403,
                f"{what.replace(' ', '_')}_not_allowed",
                f"This token may not use the {what} '{name}'." if name else f"Name the {what}.",
                hint="Ask for it to be granted to your token.",
            )


def check_retry(plane: Plane, caller: Caller, job: Job) -> None:
    """What it runs under and with may have been taken from them since."""
    if caller.operator:
        return
    check_part(plane, caller, job)
    check_engine_role(caller, job.role)
    kind = plane.core.kinds.get(job.kind)
    if kind is not None:
        check_uses(plane, caller, kind, job.payload)
    if job.kind == bulk.BULK.name and not bulk.may_repeat(job, rights_of(plane, caller), caller.scope):
        raise ApiError(
            403,
            bulk.NOT_REPEATED,
            "This bulk job was asked for with rights that your token does not have.",
            hint="Ask for it anew: `POST /api/jobs/retry` or `POST /api/jobs/cancel` with the same filter.",
        )


def rights_of(plane: Plane, caller: Caller) -> bulk.Rights:
    """What they may do in bulk: as much as to one job after the other."""

    def usable(granted: Collection[str]) -> list[str] | None:
        return None if caller.operator or EVERYTHING in granted else sorted(granted)

    return bulk.Rights(
        engine_roles=usable(caller.engine_roles),
        engines=usable(caller.engines),
        destinations=usable(caller.destinations),
        databases=usable(caller.databases.union(databases_of(plane.config, caller))),
        no_parts_of=sorted(no_parts_of(plane.config, caller)),
    )


def _storable(time: datetime | None) -> datetime | None:
    """Years at both ends that a time zone would carry out of what Python and PostgreSQL can hold."""
    if time is not None and not 1970 <= time.year <= 9000:
        raise invalid_field("run_at", "Choose a time between the years 1970 and 9000.")
    return time
