"""Facts, newest first, and who was told of one."""

from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import facts
from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError, not_found
from paddock.api.ids import optional_id, path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.tokens import Caller
from paddock.jobs.events import event_types
from paddock.web.frame import back, field, form, page, plane_of, render
from paddock.web.words import plural

PAGE_LENGTH = 50
FILTERS = {"type": "Type", "subject": "Subject"}


def routes() -> list[Route]:
    return [
        page("/events", show, PEOPLE),
        page("/events/{event_id}", show_one, PEOPLE),
        form("/events/{event_id}/redeliver", redeliver, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    asked = {name: (request.query_params.get(name) or "").strip()[:500] or None for name in FILTERS}
    cursor = request.query_params.get("cursor") or None
    found = await facts.events_page(db, caller.scope, before=read_place(cursor), limit=PAGE_LENGTH, **asked)
    told = await facts.delivery_counts(db, caller, [event["id"] for event in found])
    return await render(
        request,
        caller,
        "events.html",
        events=found,
        told=told,
        types=[*event_types(plane_of(request).core.kinds), facts.TEST_EVENT],
        filters=FILTERS,
        asked=asked,
        cursor=cursor,
        next_cursor=next_cursor(found, PAGE_LENGTH),
    )


async def show_one(request: Request, caller: Caller) -> Response:
    event = await _event(request, caller)
    deliveries = await facts.deliveries(plane_of(request).core.db, caller, event["id"])
    return await render(
        request,
        caller,
        "event.html",
        event=event,
        deliveries=deliveries,
        newest={delivery["job_id"] for delivery in newest_of(deliveries).values()},
        failed=failed_now(deliveries),
    )


def newest_of(deliveries: list[dict[str, Any]]) -> dict[UUID | str, dict[str, Any]]:
    """The last word on each subscriber, a webhook's id or a kind's name; the list is newest first."""
    newest: dict[UUID | str, dict[str, Any]] = {}
    for delivery in deliveries:
        newest.setdefault(delivery["kind"] or delivery["webhook_id"], delivery)
    return newest


def failed_now(deliveries: list[dict[str, Any]]) -> list[UUID | str]:
    """The kinds and active webhooks that were not told after all."""
    newest = newest_of(deliveries)
    return [name for name, delivery in newest.items() if delivery["status"] == "failed" and delivery["active"]]


async def redeliver(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    event = await _event(request, caller)
    named = await field(request, "kind") or optional_id(await field(request, "webhook_id") or None, "webhook_id")
    if named is not None:
        subscribers = [named]
    else:
        subscribers = failed_now(await facts.deliveries(plane.core.db, caller, event["id"]))
        if not subscribers:
            raise ApiError(409, "nothing_failed", "No delivery of this event is failed any more.")
    webhooks = [each for each in subscribers if isinstance(each, UUID)]
    kinds = [each for each in subscribers if isinstance(each, str)]
    jobs = await facts.redeliver(plane.core, caller, event["id"], webhooks, None, kinds=kinds)
    verb = "is" if len(jobs) == 1 else "are"
    who = plural(len(jobs), "subscriber" if kinds else "webhook")
    return back(request, f"/events/{event['id']}", f"{who} {verb} sent the event again.")


async def _event(request: Request, caller: Caller) -> dict[str, Any]:
    id = path_id(request.path_params["event_id"], "event")
    found = await facts.event(plane_of(request).core.db, caller, id)
    if found is None:
        raise not_found("event")
    return found
