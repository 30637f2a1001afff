"""Subscriptions: who is told of which facts."""

import ipaddress
import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

from paddock.api import facts
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.errors import ApiError, invalid_field, not_found
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import path_id
from paddock.api.job_json import EXAMPLE, BriefJob, brief_job_json, location
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import Plane, ThePlane
from paddock.api.routes.events import WEBHOOK_ID
from paddock.api.tokens import Caller
from paddock.jobs import webhook_keys

router = guarded_router("webhooks")

EVENT_TYPE = re.compile(r"(\*|[a-z][a-z0-9_]*(\.[a-z0-9_]+)*(\.\*)?)\Z")
WEBHOOK_EXAMPLE = {
    "id": WEBHOOK_ID,
    "owner": "ada",
    "all_owners": False,
    "url": "https://example.com/paddock",
    "types": ["job.failed"],
    "active": True,
    "created_at": "2026-11-15T09:00:00Z",
}


class NewWebhook(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"url": "https://example.com/paddock", "types": ["job.failed", "job.completed"]}]
        },
    )

    url: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    types: list[Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(
        min_length=1, max_length=50, description="'job.failed', 'job.*' or '*'."
    )
    all_owners: bool = Field(default=False, description="Everybody's events, not only your own: for ops.")


@router.get("/api/webhooks", summary="Subscriptions", responses=documented_page(WEBHOOK_EXAMPLE))
async def list_webhooks(
    plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    found = await facts.webhooks_page(plane.core.db, caller.scope, read_place(cursor), limit)
    return page(found, next_cursor(found, limit))


@router.post(
    "/api/webhooks",
    status_code=201,
    summary="Subscribe",
    responses=documented(
        {**WEBHOOK_EXAMPLE, "secret": "whsec_..."}, status=201, description="With the signing secret, shown this once."
    ),
)
async def create_webhook(body: NewWebhook, plane: ThePlane, caller: Asking) -> Response:
    made = await subscribe(plane, caller, body)
    return answer(made, 201, {"Location": f"/api/webhooks/{made['id']}"})


async def subscribe(plane: Plane, caller: Caller, body: NewWebhook) -> dict[str, Any]:
    """The new webhook with its signing secret; the dashboard's form comes here too."""
    check_url(body.url, allow_private=plane.config.webhook_allow_private)
    for place, type in enumerate(body.types):
        if not EVENT_TYPE.match(type):
            raise invalid_field(f"types.{place}", "Name a type like 'job.failed', all of one like 'job.*', or '*'.")
    if body.all_owners and not caller.operator:
        raise ApiError(403, "not_allowed", "Only ops may subscribe to everybody's events.")
    return await facts.create_webhook(plane.core.db, caller, url=body.url, types=body.types, all_owners=body.all_owners)


KEY_EXAMPLE = {"owner": "ada", "secret": "whsec_...", "created_at": "2026-11-15T09:00:00Z"}


# Before `/api/webhooks/{webhook_id}`.
@router.get(
    "/api/webhooks/key", summary="The key that your callbacks are signed with", responses=documented(KEY_EXAMPLE)
)
async def get_key(plane: ThePlane, caller: Asking) -> Response:
    async with plane.core.db.transaction() as tx:
        key = await webhook_keys.of(tx, caller.owner)
    return answer({"owner": caller.owner, "secret": key.secret, "created_at": key.created_at})


@router.post(
    "/api/webhooks/key/rotate",
    summary="A new key for your callbacks, from now on",
    responses=documented(KEY_EXAMPLE),
)
async def rotate_key(plane: ThePlane, caller: Asking) -> Response:
    async with plane.core.db.transaction() as tx:
        key = await webhook_keys.rotate(tx, caller.owner, actor=caller.actor)
    return answer({"owner": caller.owner, "secret": key.secret, "created_at": key.created_at})


@router.get("/api/webhooks/{webhook_id}", summary="One subscription", responses=documented(WEBHOOK_EXAMPLE))
async def get_webhook(webhook_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await facts.webhook(plane.core.db, caller, path_id(webhook_id, "webhook"))
    if found is None:
        raise not_found("webhook")
    return answer(found)


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
    summary="Send it a test event",
    responses=documented(EXAMPLE, BriefJob, status=202, description="The delivery job."),
)
async def try_webhook(webhook_id: str, plane: ThePlane, caller: Asking, key: KeyHeader = None) -> Response:
    found = await facts.webhook(plane.core.db, caller, path_id(webhook_id, "webhook"))
    if found is None:
        raise not_found("webhook")
    idempotency = key_of(caller, f"POST /api/webhooks/{found['id']}/test", key, None)
    [job] = await facts.try_webhook(plane.core, caller, found, idempotency)
    return answer(brief_job_json(job), 202, {"Location": location(job.id)})


def check_url(url: str, *, allow_private: bool) -> None:
    """What can be told from the text; what a name resolves to is checked at each connect."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise invalid_field("url", "This is not a URL.") from None
    if not url.isascii() or not url.isprintable() or " " in url or not host:
        raise invalid_field("url", "This is not a URL.")
    if not allow_private and _is_private(host):
        raise _private()
    if parts.scheme != "https" and not (allow_private and parts.scheme == "http"):
        raise invalid_field("url", "It must begin with https://.")
    if parts.username is not None or parts.password is not None:
        raise invalid_field("url", "It may not hold a user name or password; check the signature instead.")


def _private() -> ApiError:
    refusal = invalid_field("url", "It may not lead into a private network.")
    refusal.hint = (
        "Use a public receiver, or set PADDOCK_WEBHOOK_ALLOW_PRIVATE=true if everybody who may register webhooks"
        " may reach your network."
    )
    return refusal


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
