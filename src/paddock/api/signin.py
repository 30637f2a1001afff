"""How a browser signs in: with a token, or with a one-time link; what it keeps is a cookie with a session id.

The session dies with its token. The cookie is HttpOnly and SameSite=Lax (a pager's link must work), Secure under https.
Lax lets other sites make top-level GETs only; every change also needs the CSRF token and the right Origin. The
link's code is taken by POST: a mail scanner that follows links must not use it up.
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal
from urllib.parse import urlsplit
from uuid import UUID

from starlette.requests import HTTPConnection
from starlette.responses import Response

from paddock.api.edge import root_of
from paddock.api.errors import ApiError
from paddock.api.tokens import SQL, Caller, Tokens, hashed
from paddock.db.pool import Transaction

COOKIE = "paddock_session"
# A browser takes this name only from https, for the whole host: no neighbour on a subdomain can set it.
SECURE_COOKIE = "__Host-paddock_session"
CSRF_HEADER = "x-csrf-token"
MASKED = "m:"
SESSION_LASTS = timedelta(hours=24)
LINK_LASTS = timedelta(minutes=5)
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class WebSession:
    id: str
    csrf: str
    expires_at: datetime


async def create_link(tokens: Tokens, token_id: UUID) -> str:
    """The code of a link that signs in once, as that token, within five minutes."""
    code = secrets.token_urlsafe(24)
    async with tokens.db.transaction() as tx:
        await tx.execute(SQL["prune_links"])
        await tx.execute(SQL["insert_link"], hashed(code), token_id, LINK_LASTS)
    return code


def link_path(code: str) -> str:
    """In the fragment: browsers keep it to themselves, so it is in no log on the way."""
    return f"/sign-in#code={code}"


def own_address(connection: HTTPConnection) -> str:
    """Where the browser that asks finds us, without a slash at the end."""
    public_url: str | None = connection.app.state.plane.config.public_url
    return public_url or str(connection.base_url).rstrip("/") + root_of(connection.scope)


async def exchange_link(tokens: Tokens, code: str) -> WebSession | None:
    async with tokens.db.transaction() as tx:
        token_id = await tx.fetchval(SQL["take_link"], hashed(code))
        return None if token_id is None else await _start(tx, token_id)


async def sign_in(tokens: Tokens, secret: str) -> WebSession | None:
    caller = await tokens.by_secret(secret)
    if caller is None:
        return None
    async with tokens.db.transaction() as tx:
        return await _start(tx, caller.token_id)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nobody was signed in, and since when that is so."""

    why: Literal["unknown", "used", "expired", "revoked", "worker"]
    at: datetime | None = None


async def refusal_of_link(tokens: Tokens, code: str) -> Refusal:
    """Ask after `exchange_link` has said no."""
    row = await tokens.db.fetchrow(SQL["link_state"], hashed(code))
    if row is None:
        return Refusal("unknown")
    if row["token_expired"]:
        return Refusal("expired", row["token_expires_at"])
    return Refusal("used", row["used_at"]) if row["used_at"] is not None else Refusal("expired", row["expires_at"])


async def refusal_of_token(tokens: Tokens, secret: str) -> Refusal:
    """Ask after `sign_in` has said no. Only who has the secret learns more than that it is unknown."""
    row = await tokens.db.fetchrow(SQL["token_state"], hashed(secret))
    if row is None:
        return Refusal("unknown")
    if row["revoked_at"] is not None:
        return Refusal("revoked", row["revoked_at"])
    return Refusal("expired", row["expires_at"]) if row["expired"] else Refusal("worker")


async def sign_out(tokens: Tokens, session_id: str) -> None:
    async with tokens.db.transaction() as tx:
        await tx.execute(SQL["end_web_session"], hashed(session_id))
    tokens.forget()


async def _start(tx: Transaction, token_id: UUID) -> WebSession | None:
    """None for a token that is no longer good, and for workers, who have nothing to look at."""
    await tx.execute(SQL["prune_web_sessions"])
    id, csrf = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    expires_at = await tx.fetchval(SQL["insert_web_session"], hashed(id), token_id, csrf, SESSION_LASTS)
    return None if expires_at is None else WebSession(id, csrf, expires_at)


def is_secure(connection: HTTPConnection) -> bool:
    public_url = connection.app.state.plane.config.public_url
    return connection.url.scheme == "https" or (public_url is not None and public_url.startswith("https:"))


def set_cookie(response: Response, connection: HTTPConnection, session: WebSession) -> None:
    secure = is_secure(connection)
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        session.id,
        expires=session.expires_at,
        path="/",
        secure=secure,
        httponly=True,
        samesite="lax",
    )


def clear_cookie(response: Response, connection: HTTPConnection) -> None:
    secure = is_secure(connection)
    name = SECURE_COOKIE if secure else COOKIE
    response.delete_cookie(name, path="/", secure=secure, httponly=True, samesite="lax")


def session_id(connection: HTTPConnection) -> str | None:
    return connection.cookies.get(SECURE_COOKIE if is_secure(connection) else COOKIE)


def check_change(connection: HTTPConnection, caller: Caller, csrf: str | None) -> None:
    """Refuses a change that another site made this browser send. Forms pass their `csrf` field, scripts the header."""
    check_same_origin(connection)
    given = None if csrf is None else unmasked(csrf)
    if caller.csrf is None or given is None or not hmac.compare_digest(caller.csrf.encode(), given.encode()):
        raise ApiError(
            403,
            "csrf_failed",
            "The request lacks this session's CSRF token.",
            hint="Reload the page, or use a bearer token.",
        )


def masked(csrf: str) -> str:
    """As it stands in a page, each time another text: a compressed page must not tell by its length what is in it."""
    secret = csrf.encode()
    mask = secrets.token_bytes(len(secret))
    hidden = bytes(a ^ b for a, b in zip(secret, mask, strict=True))
    return MASKED + base64.urlsafe_b64encode(mask + hidden).decode()


def unmasked(given: str) -> str:
    """What was masked; anything else as it is."""
    if not given.startswith(MASKED):
        return given
    try:
        content = base64.b64decode(given[len(MASKED) :], altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        return given
    half = len(content) // 2
    return bytes(a ^ b for a, b in zip(content[half:], content[:half], strict=False)).decode("utf-8", "replace")


def check_same_origin(connection: HTTPConnection) -> None:
    if not is_same_origin(connection.headers, allowed_origins(connection)):
        raise ApiError(
            403,
            "cross_site",
            "Another site sent this request.",
            hint="Open Paddock itself and try again. Behind a proxy, PADDOCK_PUBLIC_URL should be its address.",
        )


def allowed_origins(connection: HTTPConnection) -> frozenset[str]:
    public_url = connection.app.state.plane.config.public_url
    host = connection.headers.get("host", "")
    own = {f"{connection.url.scheme}://{host}"}
    return frozenset(own if public_url is None else own | {_origin(public_url)})


def _origin(url: str) -> str:
    """Without the sub-path that a `public_url` may have: browsers do not send it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


def is_same_origin(headers: Mapping[str, str], origins: frozenset[str]) -> bool:
    """By Sec-Fetch-Site, which pages cannot forge: the browser itself compares the addresses, as it sees them, so it holds
    behind proxies that end TLS or change the Host. A name pointed at us (DNS rebinding) is same-origin with itself
    either way; it has none of our cookies, and the Host allow-list is for that. `none` is a person, who sends no Origin.
    By Origin where there is no Sec-Fetch-Site: under plain http, and from older browsers."""
    site = headers.get("sec-fetch-site")
    if site == "same-origin":
        return True
    if site not in (None, "none"):
        return False
    origin = headers.get("origin")
    return site is not None if origin is None else origin.rstrip("/") in origins
