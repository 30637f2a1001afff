"""Facts, and who was told of them."""

from typing import Annotated

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from paddock.api import facts
from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.errors import invalid_field, not_found
from paddock.api.event_types import unknown_type
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import optional_id, path_id
from paddock.api.job_json import EXAMPLE, EXAMPLE_ID, BriefJob, brief_job_json
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.jobs.events import event_types

router = guarded_router("events", PEOPLE)

EVENT_ID = "019a8b1e-4c10-7000-9d2c-6a1b2c3d4e5f"
WEBHOOK_ID = "5f0c2f0a-3a44-4f0e-9a58-1d2b8a4c7e61"
EVENT_EXAMPLE = {
    "id": EVENT_ID,
    "type": "job.completed",
    "subject": EXAMPLE_ID,
    "version": 1_794_734_100_012_000,
    "owner": "ada",
    "data": {"job_id": EXAMPLE_ID, "kind": "probe", "status": "completed", "error_code": None},
    "at": "2026-11-15T09:30:05Z",
}
DELIVERY_EXAMPLE = {
    "webhook_id": WEBHOOK_ID,
    "kind": None,
    "job_id": EXAMPLE_ID,
    "created_at": "2026-11-15T09:30:05Z",
    "url": "https://example.com/paddock",
    "owner": "ada",
    "active": True,
    "status": "completed",
    "attempts": 1,
    "answered": 204,
    "skipped": None,
    "error_code": None,
    "error_message": None,
    "hint": None,
    "next_try_at": None,
    "completed_at": "2026-11-15T09:30:05.300000Z",
}


class Redeliver(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"webhook_id": WEBHOOK_ID}]})

    webhook_id: str | None = None
    kind: str | None = Field(default=None, max_length=100, description="A kind that hears events of this type.")


@router.get("/api/events", summary="Facts, newest first", responses=documented_page(EVENT_EXAMPLE))
async def list_events(
    plane: ThePlane,
    caller: Asking,
    type: Annotated[str | None, Query(max_length=200, examples=["job.completed"])] = None,
    subject: Annotated[str | None, Query(max_length=500)] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    found = await facts.events_page(
        plane.core.db, caller.scope, before=read_place(cursor), subject=subject, type=type, limit=limit
    )
    # Events of a kind that is no longer installed are still found.
    known = {**event_types(plane.core.kinds), facts.TEST_EVENT: "A test of a webhook"}
    if type is not None and not found and (wrong := unknown_type(type, known)) is not None:
        raise invalid_field("type", wrong)
    return page(found, next_cursor(found, limit))


class EventType(BaseModel):
    type: str
    says: str


# Before `/api/events/{event_id}`.
@router.get(
    "/api/events/types",
    summary="The types of events there are",
    responses=documented([{"type": "job.failed", "says": "A job failed for good"}], list[EventType]),
)
async def list_types(plane: ThePlane, caller: Asking) -> Response:
    return answer([{"type": type, "says": says} for type, says in event_types(plane.core.kinds).items()])


@router.get("/api/events/{event_id}", summary="One fact", responses=documented(EVENT_EXAMPLE))
async def get_event(event_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await facts.event(plane.core.db, caller, path_id(event_id, "event"))
    if found is None:
        raise not_found("event")
    return answer(found)


@router.get(
    "/api/events/{event_id}/deliveries",
    summary="Who received it, and how that went",
    responses=documented_page(DELIVERY_EXAMPLE),
)
async def list_deliveries(
    event_id: str, plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    found = await facts.event(plane.core.db, caller, path_id(event_id, "event"))
    if found is None:
        raise not_found("event")
    told = await facts.deliveries(plane.core.db, caller, found["id"], read_place(cursor), limit)
    return page(told, next_cursor(told, limit, by="job_id"))


@router.post(
    "/api/events/{event_id}/redeliver",
    status_code=202,
    summary="Tell its subscribers again",
    responses=documented([EXAMPLE], list[BriefJob], status=202, description="One delivery job for each subscriber."),
)
async def redeliver(
    event_id: str, plane: ThePlane, caller: Asking, body: Redeliver | None = None, key: KeyHeader = None
) -> Response:
    found = await facts.event(plane.core.db, caller, path_id(event_id, "event"))
    if found is None:
        raise not_found("event")
    webhook_id = None if body is None else optional_id(body.webhook_id, "webhook_id")
    kind = None if body is None else body.kind
    idempotency = key_of(
        caller,
        f"POST /api/events/{found['id']}/redeliver",
        key,
        str(webhook_id) if kind is None else [str(webhook_id), kind],
    )
    webhooks = None if webhook_id is None else [webhook_id]
    kinds = None if kind is None else [kind]
    jobs = await facts.redeliver(plane.core, caller, found["id"], webhooks, idempotency, kinds=kinds)
    return answer([brief_job_json(job) for job in jobs], 202)
