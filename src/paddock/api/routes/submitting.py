"""Making work: `POST /api/jobs` and its list form."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Header
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, StringConstraints, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from paddock import tracing
from paddock.api.access import PEOPLE
from paddock.api.auth import Asking, authorize
from paddock.api.bodies import JsonRequest, is_json
from paddock.api.documenting import documented
from paddock.api.errors import ApiError, invalid_field
from paddock.api.guard import GuardedRoute, guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import WHOLE_EXAMPLE, WholeJob, job_json, location
from paddock.api.kinds_seen import may_see_kind
from paddock.api.pagination import answer
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.services.submitting import check_kind
from paddock.api.tokens import Caller, check_engine_role
from paddock.jobs.enqueueing import MAX_BATCH, unknown_kind
from paddock.jobs.model import LOW, MAX_TAG_LENGTH, MAX_TAGS, NORMAL, URGENT, NewJob


class SubmitRoute(GuardedRoute):
    """One job is submitted without FastAPI between the request and the model: that is a fifth of what it costs, and a
    worker waits for it. Whatever is odd about a request goes the usual way, which says what is wrong with it."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = JsonRequest(scope, receive)
        role = request.headers.get("x-use-case-id")
        usual = scope["method"] != "POST" or not is_json(request.headers.get("content-type"))
        if usual or len(role or "") > MAX_ENGINE_ROLE:
            return await super().handle(scope, receive, send)
        caller = request.state.caller = await authorize(request, self.roles, "POST", self.path)
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


router = guarded_router("jobs", PEOPLE)
submitting = guarded_router("jobs", PEOPLE, SubmitRoute)

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
    new = [new_job(plane, caller, item, role, index) for index, item in enumerate(body.jobs)]
    idempotency = key_of(caller, "POST /api/jobs/batch", key, [await request.json(), role])
    submitted = await plane.core.submit(new, idempotency=idempotency)
    return answer([job_json(job, plane.core.kinds) for job in submitted.jobs], 202)


def new_job(plane: ControlPlane, caller: Caller, body: JobBody, role: str | None, index: int = 0) -> NewJob:
    if plane.core.kinds.get(body.kind) is None or not may_see_kind(plane.config, caller, body.kind):
        raise unknown_kind(body.kind, index)
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


def _storable(time: datetime | None) -> datetime | None:
    """Years at both ends that a time zone would carry out of what Python and PostgreSQL can hold."""
    if time is not None and not 1970 <= time.year <= 9000:
        raise invalid_field("run_at", "Choose a time between the years 1970 and 9000.")
    return time
