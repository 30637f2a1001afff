"""Facts, newest first, and who was told of one."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import facts
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.tokens import Caller
from paddock.web.frame import back, form, page, plane_of, render

PAGE_LENGTH = 50


def routes() -> list[Route]:
    return [
        page("/events", show),
        page("/events/{event_id}", show_one),
        form("/events/{event_id}/redeliver", redeliver),
    ]


async def show(request: Request, caller: Caller) -> Response:
    asked = {name: request.query_params.get(name) or None for name in ("type", "subject")}
    before = read_place(request.query_params.get("cursor") or None)
    found = await facts.events_page(plane_of(request).core.db, caller.scope, before=before, limit=PAGE_LENGTH, **asked)
    return await render(
        request, caller, "events.html", events=found, asked=asked, next_cursor=next_cursor(found, PAGE_LENGTH)
    )


async def show_one(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    event = await facts.event(db, caller, path_id(request.path_params["event_id"], "event"))
    if event is None:
        raise not_found("event")
    deliveries = await facts.deliveries(db, caller, event["id"])
    return await render(request, caller, "event.html", event=event, deliveries=deliveries)


async def redeliver(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    event = await facts.event(plane.core.db, caller, path_id(request.path_params["event_id"], "event"))
    if event is None:
        raise not_found("event")
    jobs = await facts.redeliver(plane.core, caller, event["id"], None, None)
    told = "One webhook is" if len(jobs) == 1 else f"{len(jobs)} webhooks are"
    return back(request, f"/events/{event['id']}", f"{told} told again.")
