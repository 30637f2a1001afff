"""Subscriptions: who is told of which facts."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import facts
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.tokens import Caller
from paddock.web.frame import back, form, page, plane_of, render

PAGE_LENGTH = 100


def routes() -> list[Route]:
    return [
        page("/webhooks", show),
        form("/webhooks/{webhook_id}/test", test),
        form("/webhooks/{webhook_id}/delete", delete),
    ]


async def show(request: Request, caller: Caller) -> Response:
    before = read_place(request.query_params.get("cursor") or None)
    found = await facts.webhooks_page(plane_of(request).core.db, caller.scope, before, PAGE_LENGTH)
    return await render(request, caller, "webhooks.html", webhooks=found, next_cursor=next_cursor(found, PAGE_LENGTH))


async def test(request: Request, caller: Caller) -> Response:
    [job] = await facts.try_webhook(plane_of(request).core, caller, await _webhook(request, caller), None)
    return back(request, f"/jobs/{job.id}", "This job delivers the test event.")


async def delete(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    await facts.delete_webhook(plane_of(request).core.db, caller, webhook["id"])
    return back(request, "/webhooks", f"{webhook['url']} is told nothing more.")


async def _webhook(request: Request, caller: Caller) -> dict[str, Any]:
    id = path_id(request.path_params["webhook_id"], "webhook")
    found = await facts.webhook(plane_of(request).core.db, caller, id)
    if found is None:
        raise not_found("webhook")
    return found
