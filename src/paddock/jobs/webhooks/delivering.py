"""The delivery of one event to one subscription: a job like any other, run inside `paddock serve`.

At least once and in no order: a receiver that must not act twice remembers `Paddock-Event-Id`, one that must not go
back compares `version` for the same `subject`. The body is signed together with the time of sending, so that neither
can be changed and an old request cannot be sent again later.

The subscription's secret comes with the claim and its URL from the database; neither is in a payload, log or error.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from uuid import UUID

import asyncpg
import orjson
from pydantic import BaseModel

import paddock
from paddock.db.pool import Transaction, statements
from paddock.jobs.core import Core
from paddock.jobs.events import DELIVERY_KIND
from paddock.jobs.kinds import Backoff, Kind, Shares
from paddock.jobs.model import Job
from paddock.jobs.outcomes import Outcome, done, permanent, transient
from paddock.jobs.turn import Turn
from paddock.jobs.webhooks import outbound
from paddock.jobs.webhooks.outbound import HttpAnswer

SQL = statements("paddock.jobs.sql", "webhook.sql")
GONE = "webhook_gone"
# What a receiver says when it would like the same request later.
COME_BACK = frozenset({408, 425, 429})
LONGEST_DELAY = timedelta(hours=1)
# Slots only wait for answers, so there are many. A receiver that hangs, and an owner all of whose receivers do, leave
# most of them to others.
CONCURRENCY = 40
SHARES = Shares(lambda payload: payload.receiver, of_owner=10, of_key=5)


class WebhookPayload(BaseModel):
    event_id: UUID
    webhook_id: UUID
    # The host of its URL.
    receiver: str = ""


async def deliver(turn: Turn[WebhookPayload], core: Core) -> Outcome:
    event = await core.db.fetchrow(SQL["event_to_deliver"], turn.payload.event_id, turn.payload.webhook_id)
    secret = turn.secrets.get("signing")
    if event is None:
        return done({"skipped": "The event is no longer kept."})
    if event["url"] is None:
        return done({"skipped": "The subscription was deleted."})
    if not event["active"] or secret is None:
        return done({"skipped": "The subscription is not active."})
    body = event_body(event)
    answer = await outbound.post(
        event["url"],
        body,
        headers(event["id"], event["type"], event["now"], body, secret),
        allow_private=core.settings.webhook_allow_private,
        owner=turn.owner,
    )
    return meaning(answer, datetime.fromtimestamp(event["now"], UTC))


def event_body(event: asyncpg.Record | Mapping[str, Any]) -> bytes:
    return orjson.dumps(
        {
            "id": str(event["id"]),
            "type": event["type"],
            "subject": event["subject"],
            "version": event["version"],
            "at": event["at"],
            "data": orjson.Fragment(event["data"]),
        },
        option=orjson.OPT_UTC_Z,
    )


def headers(event_id: UUID, event_type: str, timestamp: int, body: bytes, secret: str) -> dict[str, str]:
    return {
        "Content-Type": "application/json",
        "User-Agent": f"Paddock/{paddock.__version__}",
        "Paddock-Event-Id": str(event_id),
        "Paddock-Event-Type": event_type,
        "Paddock-Timestamp": str(timestamp),
        "Paddock-Signature": f"v1={signature(secret, timestamp, body)}",
    }


def signature(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()


def meaning(answer: HttpAnswer, now: datetime) -> Outcome:
    """What a receiver's status means for the delivery."""
    status = answer.status
    if 200 <= status < 300:
        return done({"status": status})
    if 300 <= status < 400:
        return permanent(
            "webhook_redirected",
            f"The receiver answered {status}, a redirect, and Paddock follows none.",
            hint="Register the URL that it leads to.",
        )
    if status == 410:
        return permanent(
            GONE,
            "The receiver answered 410: it is gone for good, and its subscription was set inactive.",
            hint="Register the webhook again if that was a mistake.",
        )
    if 400 <= status < 500 and status not in COME_BACK:
        return permanent(
            "webhook_refused",
            f"The receiver answered {status}, and the same request would be refused again.",
            hint="Correct the receiver or the subscription, then redeliver the event.",
        )
    return transient("webhook_unavailable", f"The receiver answered {status}.", delay=retry_after(answer.headers, now))


def retry_after(headers: Mapping[str, str], now: datetime) -> timedelta | None:
    """As the receiver asked, seconds or a date, within an hour; None: as the kind's own policy says."""
    asked = headers.get("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit():
        # Nine digits are far beyond the bound and far from what a timedelta cannot hold.
        return min(timedelta(seconds=int(asked[:9])), LONGEST_DELAY)
    try:
        at = parsedate_to_datetime(asked)
    except ValueError:
        return None
    at = at.replace(tzinfo=at.tzinfo or UTC)
    return min(max(at - now, timedelta(0)), LONGEST_DELAY)


async def resolve_secrets(tx: Transaction, payload: WebhookPayload) -> Mapping[str, str]:
    secret = await tx.fetchval(SQL["signing_secret"], payload.webhook_id)
    return {} if secret is None else {"signing": secret}


async def deactivate_when_gone(tx: Transaction, job: Job) -> None:
    """In the transaction that ends the job, and so under its fence: a late attempt switches nothing off."""
    if job.error_code == GONE:
        await tx.execute(SQL["deactivate_webhook"], UUID(job.payload["webhook_id"]))


WEBHOOK = Kind(
    name=DELIVERY_KIND,
    payload=WebhookPayload,
    handler=deliver,
    about="receiver",
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=LONGEST_DELAY, limit=12),
    turn_timeout=timedelta(minutes=1),
    concurrency=CONCURRENCY,
    shares=SHARES,
    secrets=resolve_secrets,
    on_end=deactivate_when_gone,
)
