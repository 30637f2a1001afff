"""Tokens, for admins: who may ask. A secret is in one answer, that to the form which made it, and nowhere else."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import signin
from paddock.api.access import ADMINS
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.services.tokens import TokenBody, new_token
from paddock.api.tokens import Caller
from paddock.capability import grants
from paddock.field_errors import sentence_of
from paddock.web.frame import back, field, fields, form, page, plane_of, render

PAGE_LENGTH = 50
ROLES = {
    "analyst": "Makes work, sees and cancels their own.",
    "ops": "Sees and cancels everybody's work; drains, pauses, schedules.",
    "admin": "All of that, and makes tokens.",
    "worker": "Claims jobs and nothing else: for `paddock worker`.",
}
EXPIRIES = {"1": "in a day", "7": "in a week", "30": "in 30 days", "90": "in 90 days", "365": "in a year", "": "never"}
SENTENCES = {
    "string_too_short": "Fill this in.",
    "string_too_long": "It may have 200 characters at most.",
    "string_pattern_mismatch": "It may hold no control characters.",
    "literal_error": "Choose one.",
    "too_long": "These are too many.",
}


def routes() -> list[Route]:
    return [
        page("/settings/tokens", show, ADMINS),
        page("/settings/tokens/new", show_form, ADMINS),
        form("/settings/tokens", create, ADMINS),
        form("/settings/tokens/{token_id}/revoke", revoke, ADMINS),
    ]


async def show(request: Request, caller: Caller) -> Response:
    cursor = request.query_params.get("cursor") or None
    found = await plane_of(request).tokens.page(read_place(cursor), PAGE_LENGTH)
    return await render(
        request,
        caller,
        "tokens.html",
        tokens=found,
        now=datetime.now(UTC),
        grants=grants(),
        cursor=cursor,
        next_cursor=next_cursor(found, PAGE_LENGTH),
    )


async def show_form(request: Request, caller: Caller) -> Response:
    given: dict[str, Any] = {"name": "", "role": "analyst", "owner": "", "kinds": [], "expires": "90"}
    return await _show_form(request, caller, given | {grant.name: "" for grant in grants()})


async def _show_form(
    request: Request, caller: Caller, given: dict[str, Any], problems: dict[str, str] | None = None
) -> Response:
    return await render(
        request,
        caller,
        "token_new.html",
        status=422 if problems else 200,
        given=given,
        problems=problems or {},
        roles=ROLES,
        expiries=EXPIRIES,
        grants=grants(),
        some_granted=any(given[grant.name] or grant.name in (problems or {}) for grant in grants()),
        kinds=sorted(kind.name for kind in plane_of(request).core.kinds if not kind.internal),
    )


async def create(request: Request, caller: Caller) -> Response:
    granted = [grant.name for grant in grants()]
    given: dict[str, Any] = {
        **{name: await field(request, name) for name in ("name", "role", "owner", "expires", *granted)},
        "kinds": await fields(request, "kinds"),
    }
    if given["expires"] not in EXPIRIES:  # a mistake must not become a token for ever
        return await _show_form(request, caller, given, {"expires": "Choose one."})
    try:
        body = TokenBody(
            name=given["name"],
            role=given["role"],
            owner=given["owner"] or None,
            kinds=given["kinds"] or None if given["role"] == "worker" else None,
            expires_at=_expiry(given["expires"]),
            **{name: _names(given[name]) for name in granted},
        )
    except ValidationError as error:
        return await _show_form(request, caller, given, _problems(error))
    shown, secret = await plane_of(request).tokens.create(new_token(body), actor=caller.actor)
    return await render(
        request, caller, "token_made.html", token=shown, secret=secret, address=signin.own_address(request)
    )


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _expiry(days: str) -> datetime | None:
    return datetime.now(UTC) + timedelta(days=int(days)) if days else None


def _problems(error: ValidationError) -> dict[str, str]:
    return {
        str(item["loc"][0]) if item["loc"] else "": SENTENCES.get(item["type"]) or sentence_of(item)
        for item in error.errors(include_url=False, include_input=False)
    }


async def revoke(request: Request, caller: Caller) -> Response:
    revoked = await plane_of(request).tokens.revoke(
        path_id(request.path_params["token_id"], "token"),
        actor=caller.actor,
        reason=await field(request, "reason") or None,
    )
    if revoked is None:
        raise not_found("token")
    return back(request, "/settings/tokens", f"The token {revoked['name']} works no more.")
