"""Subscriptions: who is told of which facts."""

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from paddock.api import facts
from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.errors import not_found
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import path_id
from paddock.api.job_json import EXAMPLE, BriefJob, brief_job_json, location
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.api.routes.events import DELIVERY_EXAMPLE, EVENT_ID, WEBHOOK_ID
from paddock.api.services.webhooks import NewWebhook, WebhookChanges, change, check_sample, subscribe
from paddock.jobs.webhooks import keys

router = guarded_router("webhooks", PEOPLE)

WEBHOOK_EXAMPLE = {
    "id": WEBHOOK_ID,
    "owner": "ada",
    "all_owners": False,
    "url": "https://example.com/paddock",
    "types": ["job.failed"],
    "active": True,
    "created_at": "2026-11-15T09:00:00Z",
}
TOLD_EXAMPLE = {
    "id": DELIVERY_EXAMPLE["job_id"],
    "event_id": EVENT_ID,
    "type": "job.failed",
    "subject": DELIVERY_EXAMPLE["job_id"],
    **{name: value for name, value in DELIVERY_EXAMPLE.items() if name not in ("url", "owner", "active")},
}


@router.get("/api/webhooks", summary="Subscriptions", responses=documented_page(WEBHOOK_EXAMPLE))
async def list_webhooks(
    plane: ThePlane,
    caller: Asking,
    owner: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    active: Annotated[bool | None, Query(description="Only those that are on, or only those that are off.")] = None,
    q: Annotated[
        str | None, Query(min_length=1, max_length=500, description="A part of the address or of an event type.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    text = None if q is None else q.replace("\0", "")
    found = await facts.webhooks_page(
        plane.core.db, caller.scope, read_place(cursor), limit, owner=owner, active=active, text=text
    )
    return page(found, next_cursor(found, limit))


@router.post(
    "/api/webhooks",
    status_code=201,
    summary="Subscribe",
    responses=documented(
        {**WEBHOOK_EXAMPLE, "secret": "whsec_..."}, status=201, description="With the signing secret, shown this once."
    ),
)
async def create_webhook(body: NewWebhook, plane: ThePlane, caller: Asking, key: KeyHeader = None) -> Response:
    made = await subscribe(plane, caller, body, key_of(caller, "POST /api/webhooks", key, body.model_dump()))
    return answer(made, 201, {"Location": f"/api/webhooks/{made['id']}"})


KEY_EXAMPLE = {"owner": "ada", "secret": "whsec_...", "created_at": "2026-11-15T09:00:00Z"}


# Before `/api/webhooks/{webhook_id}`.
@router.get(
    "/api/webhooks/key", summary="The key that your callbacks are signed with", responses=documented(KEY_EXAMPLE)
)
async def get_key(plane: ThePlane, caller: Asking) -> Response:
    async with plane.core.db.transaction() as tx:
        key = await keys.of(tx, caller.owner)
    return answer({"owner": caller.owner, "secret": key.secret, "created_at": key.created_at})


@router.post(
    "/api/webhooks/key/rotate",
    summary="A new key for your callbacks, from now on",
    responses=documented(KEY_EXAMPLE),
)
async def rotate_key(plane: ThePlane, caller: Asking) -> Response:
    async with plane.core.db.transaction() as tx:
        key = await keys.rotate(tx, caller.owner, actor=caller.actor)
    return answer({"owner": caller.owner, "secret": key.secret, "created_at": key.created_at})


@router.get("/api/webhooks/{webhook_id}", summary="One subscription", responses=documented(WEBHOOK_EXAMPLE))
async def get_webhook(webhook_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await facts.webhook(plane.core.db, caller, path_id(webhook_id, "webhook"))
    if found is None:
        raise not_found("webhook")
    return answer(found)


@router.patch(
    "/api/webhooks/{webhook_id}",
    summary="Change its address or types, or switch it off or on",
    responses=documented(WEBHOOK_EXAMPLE),
)
async def change_webhook(webhook_id: str, body: WebhookChanges, plane: ThePlane, caller: Asking) -> Response:
    found = await facts.webhook(plane.core.db, caller, path_id(webhook_id, "webhook"))
    changed = None if found is None else await change(plane, caller, found, body)
    if changed is None:
        raise not_found("webhook")
    return answer(changed)


@router.get(
    "/api/webhooks/{webhook_id}/deliveries",
    summary="What it was told and what it answered, newest first",
    responses=documented_page(TOLD_EXAMPLE),
)
async def list_deliveries(
    webhook_id: str, plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    found = await facts.webhook(plane.core.db, caller, path_id(webhook_id, "webhook"))
    if found is None:
        raise not_found("webhook")
    told = await facts.deliveries_to(plane.core.db, found["id"], read_place(cursor), limit)
    return page(told, next_cursor(told, limit))


@router.delete("/api/webhooks/{webhook_id}", summary="Unsubscribe", responses=documented(WEBHOOK_EXAMPLE))
async def delete_webhook(webhook_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await facts.webhook(plane.core.db, caller, path_id(webhook_id, "webhook"))
    deleted = None if found is None else await facts.delete_webhook(plane.core.db, caller, found["id"])
    if deleted is None:
        raise not_found("webhook")
    return answer(deleted)


@router.post(
    "/api/webhooks/{webhook_id}/test",
    status_code=202,
    summary="Send it a test event, or a sample of a type",
    responses=documented(EXAMPLE, BriefJob, status=202, description="The delivery job."),
)
async def try_webhook(
    webhook_id: str,
    plane: ThePlane,
    caller: Asking,
    key: KeyHeader = None,
    type: Annotated[
        str | None, Query(max_length=200, description="A sample of this type; left out: `webhook.test`.")
    ] = None,
) -> Response:
    found = await facts.webhook(plane.core.db, caller, path_id(webhook_id, "webhook"))
    if found is None:
        raise not_found("webhook")
    check_sample(plane, type)
    idempotency = key_of(caller, f"POST /api/webhooks/{found['id']}/test", key, type)
    [job] = await facts.try_webhook(plane.core, caller, found, idempotency, type)
    return answer(brief_job_json(job), 202, {"Location": location(job.id)})
