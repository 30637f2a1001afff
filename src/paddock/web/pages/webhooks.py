"""Subscriptions: who is told of which facts, and whether that works."""

from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import facts, webhook_health
from paddock.api.errors import ApiError, not_found
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.routes.webhooks import NewWebhook, subscribe
from paddock.api.tokens import Caller
from paddock.jobs.errors import Refused
from paddock.web.frame import back, field, fields, form, page, plane_of, regions, render

PAGE_LENGTH = 25
DELIVERIES_SHOWN = 25
ALL = "*"
# What the core tells of; packages with kinds of their own may tell more, which is then typed.
TYPES = {
    "job.failed": "A job failed for good",
    "job.completed": "A job completed",
    "job.cancelled": "A job was cancelled",
}


def routes() -> list[Route]:
    return [
        page("/webhooks", show),
        page("/webhooks/new", show_form),
        form("/webhooks", create),
        page("/webhooks/{webhook_id}", show_one),
        form("/webhooks/{webhook_id}/test", test),
        form("/webhooks/{webhook_id}/delete", delete),
    ]


async def show(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    cursor = request.query_params.get("cursor") or None
    found = await facts.webhooks_page(db, caller.scope, read_place(cursor), PAGE_LENGTH)
    health = await webhook_health.health(db, [webhook["id"] for webhook in found])
    return await render(
        request,
        caller,
        "webhooks.html",
        webhooks=found,
        health=health,
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
    return await _show_form(request, caller, {"url": "", "types": ["job.failed"], "other": "", "all_owners": False})


async def _show_form(
    request: Request, caller: Caller, given: dict[str, Any], problem: ApiError | Refused | None = None
) -> Response:
    return await render(
        request,
        caller,
        "webhook_new.html",
        status=200 if problem is None else status_of(problem),
        types=TYPES,
        given=given,
        problem=problem,
        problems={} if problem is None else _by_field(problem),
    )


def status_of(problem: ApiError | Refused) -> int:
    return problem.status_code if isinstance(problem, ApiError) else problem.status


def _by_field(problem: ApiError | Refused) -> dict[str, str]:
    """Under the field it is about; what is about none stands at the top."""
    found: Any = problem.details.get("fields") or [{"field": "", "message": problem.message}]
    return {item["field"].partition(".")[0]: item["message"] for item in found}


async def create(request: Request, caller: Caller) -> Response:
    other = await field(request, "other")
    types = await fields(request, "types")
    given: dict[str, Any] = {
        "url": await field(request, "url"),
        "types": types,
        "other": other,
        "all_owners": await field(request, "all_owners") == "on",
    }
    wanted = [ALL] if ALL in types else [*types, *other.replace(",", " ").split()]
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
    sentences = {"url": "Say where to deliver.", "types": "Choose what it is to be told of."}
    lacking = {str(item["loc"][0]): str(item["msg"]) for item in error.errors(include_url=False, include_input=False)}
    listed = [{"field": name, "message": sentences.get(name, message)} for name, message in lacking.items()]
    return ApiError(422, "invalid", "The form is not complete.", details={"fields": listed})


async def test(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    [job] = await facts.try_webhook(plane_of(request).core, caller, webhook, None)
    return back(request, f"/webhooks/{webhook['id']}?tested={job.id}")


async def delete(request: Request, caller: Caller) -> Response:
    webhook = await _webhook(request, caller)
    await facts.delete_webhook(plane_of(request).core.db, caller, webhook["id"])
    return back(request, "/webhooks", f"{host_of(webhook['url'])} is told nothing more.")


async def _webhook(request: Request, caller: Caller) -> dict[str, Any]:
    id: UUID = path_id(request.path_params["webhook_id"], "webhook")
    found = await facts.webhook(plane_of(request).core.db, caller, id)
    if found is None:
        raise not_found("webhook")
    return found
