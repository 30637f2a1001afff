"""Tokens, for admins: who may ask. A secret is in one answer, that to the form which made it, and nowhere else."""

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api import signin
from paddock.api.errors import not_found
from paddock.api.ids import path_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.routes.tokens import TokenBody, new_token
from paddock.api.tokens import Caller
from paddock.web.frame import back, field, fields, form, page, plane_of, render

PAGE_LENGTH = 50
ROLES = {
    "analyst": "Makes work, sees and cancels their own.",
    "ops": "Sees and cancels everybody's work; drains, pauses, schedules.",
    "admin": "All of that, and makes tokens.",
    "worker": "Claims jobs and nothing else: for `paddock worker`.",
}
EXPIRIES = {"1": "in a day", "7": "in a week", "30": "in 30 days", "90": "in 90 days", "365": "in a year", "": "never"}
GRANTS = {
    "engine_roles": ("Engine roles", "What X-Use-Case-Id may say."),
    "engines": ("Engines", "Which it may run SQL on."),
    "destinations": ("Destinations", "Where it may write to."),
    "databases": ("Databases", "Which it may dump."),
}
SENTENCES = {
    "string_too_short": "Fill this in.",
    "string_too_long": "It may have 200 characters at most.",
    "string_pattern_mismatch": "It may hold no control characters.",
    "literal_error": "Choose one.",
    "too_long": "These are too many.",
}


def routes() -> list[Route]:
    return [
        page("/settings/tokens", show),
        page("/settings/tokens/new", show_form),
        form("/settings/tokens", create),
        form("/settings/tokens/{token_id}/revoke", revoke),
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
        grants=GRANTS,
        cursor=cursor,
        next_cursor=next_cursor(found, PAGE_LENGTH),
    )


async def show_form(request: Request, caller: Caller) -> Response:
    given = {"name": "", "role": "analyst", "owner": "", "kinds": [], "expires": "90", **dict.fromkeys(GRANTS, "")}
    return await _show_form(request, caller, given)


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
        grants=GRANTS,
        kinds=sorted(kind.name for kind in plane_of(request).core.kinds if not kind.internal),
    )


async def create(request: Request, caller: Caller) -> Response:
    given: dict[str, Any] = {
        **{name: await field(request, name) for name in ("name", "role", "owner", "expires", *GRANTS)},
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
            **{name: _names(given[name]) for name in GRANTS},
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
        str(item["loc"][0]) if item["loc"] else "": SENTENCES.get(item["type"], str(item["msg"]))
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
