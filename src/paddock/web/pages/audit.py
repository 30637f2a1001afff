"""Who changed what, and why; newest first."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import auditing
from paddock.api.access import OPERATORS
from paddock.api.durations import parse
from paddock.api.errors import invalid_field
from paddock.api.keyset import next_cursor, read_place
from paddock.api.tokens import Caller
from paddock.capability import capabilities
from paddock.web.frame import page, plane_of, render
from paddock.web.places import is_id, place_of

PAGE_LENGTH = 50
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
FILTERS = {"actor": "Actor", "action": "Action", "subject": "Target", "since": "Since"}
TIMES = {"1h": "the last hour", "24h": "the last day", "7d": "the last week", "30d": "the last 30 days"}

# How an action is said, and of what. Capabilities declare their own; one that nobody declares is shown as it is.
ACTIONS: Mapping[str, tuple[str, str]] = {
    "cancel": ("cancelled", "a job"),
    "retry": ("retried", "a job"),
    "run_now": ("ran now", "a job"),
    "bulk_cancel": ("cancelled", "several jobs"),
    "bulk_retry": ("retried", "several jobs"),
    "bulk_run_now": ("ran now", "several jobs"),
    "pause": ("paused", "a kind"),
    "resume": ("resumed", "a kind"),
    "drain_on": ("switched drain mode on", ""),
    "drain_off": ("switched drain mode off", ""),
    "quiet": ("quieted", "a worker"),
    "unquiet": ("resumed", "a worker"),
    "schedule.create": ("created", "a schedule"),
    "schedule.update": ("changed", "a schedule"),
    "schedule.delete": ("deleted", "a schedule"),
    "schedule.run": ("ran now", "a schedule"),
    "token_created": ("created", "a token"),
    "token_revoked": ("revoked", "a token"),
    "token_restored": ("restored", "a token"),
    "alarm.dismiss": ("dismissed", "an alarm"),
    "config": ("changed", "a setting"),
    "redeliver": ("redelivered", "an event"),
    "webhook_created": ("created", "a webhook"),
    "webhook_changed": ("changed", "a webhook"),
    "webhook_deleted": ("deleted", "a webhook"),
    "webhook_key_rotated": ("rotated", "a signing key"),
}
# Lists and pages that show what has no page of its own.
SHOWN_ON: Mapping[str, str] = {
    "worker": "/workers",
    "jobs": "/jobs",
    "setting": "/settings",
    "alarm": "/",
    "service": "/settings",
}


def actions() -> dict[str, tuple[str, str]]:
    """Two capabilities that share an action share its verb: `deleted an export or a dump`."""
    known = dict(ACTIONS)
    for capability in capabilities():
        for action, (verb, of) in capability.audit.items():
            before = known.get(action)
            known[action] = (verb, of) if before is None else (before[0], f"{before[1]} or {of}")
    return known


def action_words() -> dict[str, str]:
    return {action: f"{verb} {of}".strip() for action, (verb, of) in actions().items()}


def routes() -> list[Route]:
    return [page("/audit", show, OPERATORS)]


async def show(request: Request, caller: Caller) -> Response:
    asked = {name: (request.query_params.get(name) or "").strip()[:500] or None for name in FILTERS}
    cursor = request.query_params.get("cursor") or None
    found = await auditing.page(
        plane_of(request).core.db,
        before=read_place(cursor),
        since=since(asked["since"]),
        actor=asked["actor"],
        action=asked["action"],
        subject=subject_of(asked["subject"]),
        limit=PAGE_LENGTH,
    )
    known = actions()
    return await render(
        request,
        caller,
        "audit.html",
        entries_found=[{**entry, **target(entry, caller, known)} for entry in found],
        filters=FILTERS,
        asked=asked,
        words=action_words(),
        times=TIMES,
        cursor=cursor,
        next_cursor=next_cursor(found, PAGE_LENGTH),
    )


def since(text: str | None) -> datetime | None:
    """'24h' as the choices have it, or a time as links from elsewhere may have it."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
        return max(EARLIEST, at if at.tzinfo else at.replace(tzinfo=UTC))
    except ValueError:
        pass
    try:
        return max(EARLIEST, datetime.now(UTC) - parse(text, "since"))
    except OverflowError:
        raise invalid_field("since", "That is too long ago.") from None


def subject_of(text: str | None) -> str | None:
    """As it is kept, 'job:019a…'; who pastes an id alone means a job."""
    if text is None:
        return None
    try:
        return f"job:{UUID(text)}"
    except ValueError:
        return text


def target(entry: Mapping[str, Any], caller: Caller, known: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """What was changed, as a kind of thing, its name, and the path of its page, if it has one."""
    what, _, name = str(entry["subject"]).partition(":")
    verb, of = known.get(entry["action"], (entry["action"], ""))
    # What was deleted has no page any more.
    gone = verb == "deleted" and what in of.split()
    path = None if gone else SHOWN_ON.get(what) or place_of(what, name)
    if what == "token":
        path = "/settings/tokens" if caller.role == "admin" else None
        name = str(entry["details"].get("name") or name)
    return {"verb": verb, "what": what, "name": name, "path": path, "is_id": is_id(name)}
