"""Signing in with a token or a one-time link, and out again."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qs, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from paddock.api import signin
from paddock.api.access import PEOPLE, open_route
from paddock.api.auth import authenticate
from paddock.api.errors import ApiError
from paddock.api.signin import Refusal
from paddock.api.tokens import PREFIX, Caller
from paddock.web.frame import field, form, plane_of, problem, render, url_of


def routes() -> list[Route]:
    return [
        open_route("/sign-in", show),
        open_route("/sign-in", sign_in, method="POST"),
        form("/sign-out", sign_out, PEOPLE),
    ]


@dataclass(frozen=True, slots=True)
class Sentence:
    """Why one was not let in, since when, and what to do."""

    text: str
    at: datetime | None
    advice: str


LINKS = {
    "used": (
        "This link was used already",
        "A link signs in once. If that was not you, tell an admin to revoke the token.",
    ),
    "expired": ("This link has expired", "A link is good for five minutes. Make another with `paddock tokens link`."),
    "unknown": ("This link is not known here", "Was it copied whole? Make another with `paddock tokens link`."),
}
TOKENS = {
    "revoked": ("This token was revoked", "Ask an admin for another."),
    "expired": ("This token has expired", "Ask an admin for another."),
    "worker": (
        "This is a worker's token",
        "It only claims jobs: use one of role analyst, ops or admin.",
    ),
    "unknown": ("This token is not known here", "Was it copied whole, and is it of this installation?"),
}


async def show(request: Request) -> Response:
    target = own_path(request.query_params.get("next"))
    try:
        already: Caller | None = await authenticate(request, plane_of(request).tokens)
    except ApiError:
        already = None
    return await render(request, None, "sign_in.html", next=target, refused=None, already=already)


async def sign_in(request: Request) -> Response:
    try:
        signin.check_same_origin(request)
    except ApiError as error:
        return await problem(request, None, error.status_code, error.message, error.hint)
    tokens = plane_of(request).tokens
    target = own_path(await field(request, "next"))
    token = await field(request, "token")
    code = await field(request, "code") or code_in(token)
    session = await signin.exchange_link(tokens, code) if code else await signin.sign_in(tokens, token)
    if session is None:
        refusal = await signin.refusal_of_link(tokens, code) if code else await signin.refusal_of_token(tokens, token)
        refused = sentence(refusal, by_link=bool(code), given=token)
        return await render(request, None, "sign_in.html", status=401, next=target, refused=refused, already=None)
    path, _, query = target.partition("?")
    response = RedirectResponse(url_of(request, path) + (f"?{query}" if query else ""), 303)
    signin.set_cookie(response, request, session)
    return response


def code_in(text: str) -> str:
    """Of a whole link that was pasted where the token goes, as one must where scripts are off."""
    return parse_qs(urlsplit(text).fragment).get("code", [""])[0] if "#code=" in text else ""


def sentence(refusal: Refusal, *, by_link: bool, given: str) -> Sentence:
    text, advice = (LINKS if by_link else TOKENS)[refusal.why]
    if not by_link and refusal.why == "unknown" and not given.startswith(PREFIX):
        advice = f"A token begins with {PREFIX}."
    return Sentence(text, refusal.at, advice)


async def sign_out(request: Request, caller: Caller) -> Response:
    session_id = signin.session_id(request)
    if session_id is not None:
        await signin.sign_out(plane_of(request).tokens, session_id)
    response = RedirectResponse(url_of(request, "/sign-in"), 303)
    signin.clear_cookie(response, request)
    return response


def own_path(path: str | None) -> str:
    """Where to go after signing in: on this server only. '//other' and '/\\other' lead elsewhere, and so does either
    with a tab or line break in it, which browsers drop."""
    if path is None or not path.startswith("/") or path.startswith("//") or "\\" in path:
        return "/"
    if any(character <= " " or character == "\x7f" for character in path):
        return "/"
    return path
