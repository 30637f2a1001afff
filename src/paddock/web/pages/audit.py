"""Who changed what, and why; newest first."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import auditing
from paddock.api.durations import parse
from paddock.api.errors import invalid_field
from paddock.api.keyset import next_cursor, read_place
from paddock.api.tokens import Caller
from paddock.web.frame import page, plane_of, render

PAGE_LENGTH = 50
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
FILTERS = {"actor": "Who", "action": "What", "subject": "Of", "since": "Since"}
TIMES = {"1h": "the last hour", "24h": "the last day", "7d": "the last week", "30d": "the last 30 days"}

# How an action is said, and of what; one that is not here is shown as it is.
ACTIONS: Mapping[str, tuple[str, str]] = {
    "cancel": ("cancelled", "a job"),
    "retry": ("ran again", "a job"),
    "run_now": ("made due now", "a job"),
    "pause": ("paused", "a kind"),
    "resume": ("resumed", "a kind"),
    "drain_on": ("switched drain mode on", ""),
    "drain_off": ("switched drain mode off", ""),
    "quiet": ("quieted", "a worker"),
    "unquiet": ("let claim again", "a worker"),
    "schedule.create": ("made", "a schedule"),
    "schedule.update": ("changed", "a schedule"),
    "schedule.delete": ("deleted", "a schedule"),
    "schedule.run": ("ran now", "a schedule"),
    "token_created": ("made", "a token"),
    "token_revoked": ("revoked", "a token"),
    "config": ("changed", "a setting"),
    "redeliver": ("told again", "an event"),
    "webhook_created": ("made", "a webhook"),
    "webhook_deleted": ("deleted", "a webhook"),
}
WORDS = {action: f"{verb} {of}".strip() for action, (verb, of) in ACTIONS.items()}

# Where what was changed is shown, by the word before the colon of a subject; {} is what follows it.
PLACES: Mapping[str, str] = {
    "job": "/jobs/{}",
    "group": "/groups/{}",
    "event": "/events/{}",
    "webhook": "/webhooks/{}",
}
LISTS: Mapping[str, str] = {
    "kind": "/kinds",
    "worker": "/workers",
    "schedule": "/schedules",
    "setting": "/settings",
    "service": "/settings",
}


def routes() -> list[Route]:
    return [page("/audit", show)]


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
    return await render(
        request,
        caller,
        "audit.html",
        entries_found=[{**entry, **target(entry, caller)} for entry in found],
        filters=FILTERS,
        asked=asked,
        words=WORDS,
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


def target(entry: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
    """What was changed, as a kind of thing, its name, and the path of its page, if it has one."""
    what, _, name = str(entry["subject"]).partition(":")
    path = PLACES[what].format(name) if what in PLACES and _is_id(name) else LISTS.get(what)
    if what == "token":
        path = "/settings/tokens" if caller.role == "admin" else None
        name = str(entry["details"].get("name") or name)
    if what == "webhook" and entry["action"] == "webhook_deleted":
        path = None
    verb = ACTIONS.get(entry["action"], (entry["action"], ""))[0]
    return {"verb": verb, "what": what, "name": name, "path": path, "is_id": _is_id(name)}


def _is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True
