"""Subscriptions: who is told of which facts, and whether that works."""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import facts, webhook_health
from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError, not_found
from paddock.api.event_types import ALL
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.services.webhooks import NewWebhook, WebhookChanges, change, check_sample, subscribe
from paddock.api.tokens import Caller
from paddock.field_errors import field_errors
from paddock.jobs.errors import Refused
from paddock.jobs.events import event_types
from paddock.web.frame import back, clean, field, fields, form, page, plane_of, regions, render

PAGE_LENGTH = 25
FILTERS = ("q", "status", "owner")
ACTIVE = {"on": True, "off": False}
DELIVERIES_SHOWN = 25


def routes() -> list[Route]:
    return [
        page("/webhooks", show, PEOPLE),
        page("/webhooks/new", show_form, PEOPLE),
        form("/webhooks", create, PEOPLE),
        page("/webhooks/{webhook_id}", show_one, PEOPLE),
        page("/webhooks/{webhook_id}/edit", show_edit, PEOPLE),
        form("/webhooks/{webhook_id}/edit", edit, PEOPLE),
        form("/webhooks/{webhook_id}/test", test, PEOPLE),
        form("/webhooks/{webhook_id}/delete", delete, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    cursor = request.query_params.get("cursor") or None
    asked = {name: clean(request.query_params.get(name) or "")[:500] or None for name in FILTERS}
    if asked["status"] not in ACTIVE:
        asked["status"] = None
    found = await facts.webhooks_page(
        db,
        caller.scope,
        read_place(cursor),
        PAGE_LENGTH,
        owner=asked["owner"],
        active=ACTIVE.get(asked["status"] or ""),
        text=asked["q"],
    )
    health = await webhook_health.health(db, [webhook["id"] for webhook in found])
    return await render(
        request,
        caller,
        "webhooks.html",
        webhooks=found,
        health=health,
        asked=asked,
        narrowed=any(asked.values()),
        cursor=cursor,
        next_cursor=next_cursor(found, PAGE_LENGTH),
    )


async def show_one(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    return await _show_one(request, caller, webhook)


async def _show_one(request: Request, caller: Caller, webhook: dict[str, Any], secret: str | None = None) -> Response:
    db, asked = plane_of(request).core.db, regions(request)
    cursor = request.query_params.get("cursor") or None
    told = await facts.deliveries_to(db, webhook["id"], read_place(cursor), DELIVERIES_SHOWN)
    health = await webhook_health.health(db, [webhook["id"]]) if not asked or "health" in asked else {}
    tested = request.query_params.get("tested")
    return await render(
        request,
        caller,
        "webhook.html",
        webhook=webhook,
        host=host_of(webhook["url"]),
        secret=secret,
        types=list(event_types(plane_of(request).core.kinds)),
        health=health.get(webhook["id"]),
        deliveries=told,
        trial=next((delivery for delivery in told if str(delivery["id"]) == tested), None),
        cursor=cursor,
        next_cursor=next_cursor(told, DELIVERIES_SHOWN),
    )


def host_of(url: str) -> str:
    """How an address is called in a sentence: its path may be long, and a secret."""
    return urlsplit(url).netloc or url


async def show_form(request: Request, caller: Caller) -> Response:
    return await _show_form(
        request, caller, {"url": "", "types": ["job.failed"], "other": "", "all_owners": False, "shown": None}
    )


async def _show_form(
    request: Request,
    caller: Caller,
    given: dict[str, Any],
    problem: ApiError | Refused | None = None,
    webhook: dict[str, Any] | None = None,
) -> Response:
    return await render(
        request,
        caller,
        "webhook_new.html",
        status=200 if problem is None else status_of(problem),
        types=event_types(plane_of(request).core.kinds),
        given=given,
        webhook=webhook,
        host="" if webhook is None else host_of(webhook["url"]),
        problem=problem,
        problems={} if problem is None else _by_field(problem),
    )


def status_of(problem: ApiError | Refused) -> int:
    return problem.status_code if isinstance(problem, ApiError) else problem.status


def _by_field(problem: ApiError | Refused) -> dict[str, str]:
    """Under the field it is about; what is about none stands at the top."""
    found: Any = problem.details.get("fields") or [{"field": "", "message": problem.message}]
    return {item["field"].partition(".")[0]: item["message"] for item in found}


async def _form_values(request: Request) -> tuple[dict[str, Any], list[str]]:
    """What was entered, and the types that are meant by it."""
    other = await field(request, "other")
    types = await fields(request, "types")
    given: dict[str, Any] = {
        "url": await field(request, "url"),
        "types": types,
        "other": other,
        "all_owners": await field(request, "all_owners") == "on",
        "active": await field(request, "active") == "on",
        "shown": await _values_of_the_form(request),
    }
    return given, [ALL] if ALL in types else [*types, *other.replace(",", " ").split()]


async def _values_of_the_form(request: Request) -> dict[str, Any] | None:
    """What the form showed when it was opened: only what somebody changed in it is meant to change."""
    if "shown_url" not in await request.form():
        return None
    return {
        "url": await field(request, "shown_url"),
        "types": await fields(request, "shown_types"),
        "active": await field(request, "shown_active") == "on",
    }


async def show_edit(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    known = {ALL, *event_types(plane_of(request).core.kinds)}
    given = {
        "url": webhook["url"],
        "types": [type for type in webhook["types"] if type in known],
        "other": " ".join(type for type in webhook["types"] if type not in known),
        "active": webhook["active"],
        "shown": webhook,
    }
    return await _show_form(request, caller, given, webhook=webhook)


async def edit(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    given, wanted = await _form_values(request)
    try:
        # Only what differs from what was shown: the rest may have been changed meanwhile, and is not checked again.
        shown = given["shown"] or webhook
        body = WebhookChanges(
            url=None if given["url"] == shown["url"] else given["url"],
            types=None if set(wanted) == set(shown["types"]) else wanted,
            active=None if given["active"] == shown["active"] else given["active"],
        )
        if body == WebhookChanges():
            return back(request, f"/webhooks/{webhook['id']}", "Nothing was changed.")
        if await change(plane_of(request), caller, webhook, body) is None:
            raise not_found("webhook")
    except ValidationError as error:
        return await _show_form(request, caller, given, _incomplete(error), webhook)
    except (ApiError, Refused) as problem:
        return await _show_form(request, caller, given, problem, webhook)
    return back(request, f"/webhooks/{webhook['id']}", "The webhook was changed; its secret is the same.")


async def create(request: Request, caller: Caller) -> Response:
    given, wanted = await _form_values(request)
    try:
        body = NewWebhook(url=given["url"], types=wanted, all_owners=given["all_owners"])
        made = await subscribe(plane_of(request), caller, body)
    except ValidationError as error:
        return await _show_form(request, caller, given, _incomplete(error))
    except (ApiError, Refused) as problem:
        return await _show_form(request, caller, given, problem)
    secret = made.pop("secret")
    return await _show_one(request, caller, made, secret)


def _incomplete(error: ValidationError) -> ApiError:
    sentences = {"url": "Enter the address to deliver to.", "types": "Choose the events to deliver."}
    lacking = {found.path[0]: found.sentence for found in field_errors(error)}
    listed = [{"field": name, "message": sentences.get(name, message)} for name, message in lacking.items()]
    return ApiError(422, "invalid", "The form is not complete.", details={"fields": listed})


async def test(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    type = await field(request, "type") or None
    check_sample(plane_of(request), type)
    [job] = await facts.try_webhook(plane_of(request).core, caller, webhook, None, type)
    return back(request, f"/webhooks/{webhook['id']}?tested={job.id}")


async def delete(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    await facts.delete_webhook(plane_of(request).core.db, caller, webhook["id"])
    return back(request, "/webhooks", f"{host_of(webhook['url'])} gets no more events.")


async def _webhook(request: Request, caller: Caller) -> dict[str, Any]:
    id: UUID = path_id(request.path_params["webhook_id"], "webhook")
    found = await facts.webhook(plane_of(request).core.db, caller, id)
    if found is None:
        raise not_found("webhook")
    return found
