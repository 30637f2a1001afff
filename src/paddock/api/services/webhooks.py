"""Subscribing to events, whoever asks: a route, a page or a command only translates."""

import ipaddress
from collections.abc import Sequence
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from paddock.api import facts
from paddock.api.errors import ApiError, invalid, invalid_field
from paddock.api.event_types import unknown_type
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.events import event_types


class NewWebhook(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"url": "https://example.com/paddock", "types": ["job.failed", "job.completed"]}]
        },
    )

    url: Annotated[str, StringConstraints(min_length=1, max_length=2000)]
    types: list[Annotated[str, StringConstraints(min_length=1, max_length=200)]] = Field(
        min_length=1, max_length=50, description="'job.failed', 'job.*' or '*'; GET /api/events/types lists them."
    )
    all_owners: bool = Field(default=False, description="Everybody's events, not only your own: for ops.")


class WebhookChanges(BaseModel):
    """What is not named stays as it is; the signing secret always does."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"types": ["job.*"]}]})

    url: Annotated[str, StringConstraints(min_length=1, max_length=2000)] | None = None
    types: list[Annotated[str, StringConstraints(min_length=1, max_length=200)]] | None = Field(
        default=None, min_length=1, max_length=50
    )
    active: bool | None = Field(default=None, description="False: it is told of nothing until it is true again.")


async def change(
    plane: ControlPlane, caller: Caller, webhook: dict[str, Any], body: WebhookChanges
) -> dict[str, Any] | None:
    """The webhook as it is now; None: it was deleted meanwhile. Only what changes is checked: an address that was allowed
    when it was registered does not keep somebody from changing the types."""
    if (body.url, body.types, body.active) == (None, None, None):
        raise invalid_field("types", "Name what is to change: url, types or active.")
    _check(plane, body.url, body.types or [])
    return await facts.change_webhook(
        plane.core.db, caller, webhook["id"], url=body.url, types=body.types, active=body.active
    )


def check_sample(plane: ControlPlane, type: str | None) -> None:
    if type is not None and (wrong := unknown_type(type, event_types(plane.core.kinds))) is not None:
        raise invalid_field("type", wrong)


async def subscribe(
    plane: ControlPlane, caller: Caller, body: NewWebhook, key: IdempotencyKey | None = None
) -> dict[str, Any]:
    """The new webhook with its signing secret; the dashboard's form comes here too."""
    _check(plane, body.url, body.types)
    if body.all_owners and not caller.operator:
        raise ApiError(403, "not_allowed", "Only ops may subscribe to everybody's events.")
    return await facts.create_webhook(
        plane.core.db, caller, url=body.url, types=body.types, all_owners=body.all_owners, key=key
    )


def _check(plane: ControlPlane, url: str | None, types: Sequence[str]) -> None:
    """Tells all that is wrong with it at once, the address and each of the types."""
    wrong: list[dict[str, str]] = []
    hint = None
    try:
        if url is not None:
            check_url(url, allow_private=plane.config.webhook_allow_private)
    except ApiError as refused:
        wrong, hint = refused.details["fields"], refused.hint
    known = event_types(plane.core.kinds)
    found = {f"types.{n}": unknown_type(type, known, wildcards=True) for n, type in enumerate(types)}
    wrong += [{"field": field, "message": message} for field, message in found.items() if message is not None]
    if wrong:
        raise invalid(wrong, hint)


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
    return invalid(
        [{"field": "url", "message": "It may not lead into a private network."}],
        "Use a public receiver, or set PADDOCK_WEBHOOK_ALLOW_PRIVATE=true if everybody who may register webhooks"
        " may reach your network.",
    )


def _is_private(host: str) -> bool:
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return host == "localhost" or host.endswith((".localhost", ".local", ".internal"))
