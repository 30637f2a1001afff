"""What every page of the dashboard has in common: who may see it, how it is rendered, where its links lead.

A page is a module in `pages/` with `routes()`, which say who may use them, and its template in `templates/`:

    def routes() -> list[Route]:
        return [page("/workers", show, OPERATORS), form("/workers/{session}/quiet", quiet, OPERATORS)]

    async def show(request: Request, caller: Caller) -> Response:
        return await render(request, caller, "workers.html", workers=await reading.workers(plane_of(request).core.db))

    async def quiet(request: Request, caller: Caller) -> Response:
        ...                                     # what the API route calls; raise ApiError or Refused to say no
        return back(request, "/workers", "Worker w-1 claims nothing new.")

- `page` shows, `form` changes: a POST that carries `{{ csrf() }}` and answers 303 with a sentence (`back`).
- Links, in templates and here, go through `url("/jobs", status="failed")`: a proxy may serve us under a sub-path.
- Live: `<section id="load" data-live="jobs">{% block load %}…{% endblock %}</section>`. The script asks for the same
  address with the header `X-Paddock-Regions: load`, and `render` answers with that block alone. `regions(request)`
  tells a page which blocks are wanted, so that it can leave out the work of the others. See static/live.js.
- Badges, times, tables, dialogs, charts: macros in `templates/parts/`, called as `ui.status(job.status)`.
- No style attributes, no inline scripts: the policy below refuses them. Data for scripts stands in
  `<script type="application/json">`, which no browser runs.
"""

import gzip
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

import jinja2
import orjson
import structlog
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

import paddock
from paddock.api import signin
from paddock.api.access import Roles, RouteWithRoles, Table, allowed
from paddock.api.auth import authenticate
from paddock.api.database_problems import RETRY_SECONDS, database_problem
from paddock.api.edge import root_of
from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.jobs.errors import Refused
from paddock.web import assets, navigation, words
from paddock.web.json_tree import json_tree
from paddock.web.places import is_id, place_of, place_of_subject
from paddock.web.progress import progress_of, reported
from paddock.web.standing import standing_of

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
REGIONS_HEADER = "x-paddock-regions"
REGION = re.compile(r"[a-z][a-z0-9_]*\Z")
SAID_COOKIE = "paddock_said"
LONGEST_SAID = 500
# Quoted they are three times as many, and a browser drops a cookie of more than 4 KiB.
MOST_BYTES_SAID = 1_200
LONGEST_REASON = 500  # as the API has it
ZIPPED_FROM_BYTES = 2_000
# However many pages are open: so many regions are rendered in a second, a few hundredths of a core.
REGIONS_PER_SECOND = 5

log = structlog.get_logger()

Page = Callable[[Request, Caller], Awaitable[Response]]


def page(path: str, show: Page, roles: Roles) -> Route:
    """Lets in who has one of the roles; a browser that is not signed in is shown the way."""
    return RouteWithRoles(path, _guarded("GET", show, roles), roles, method="GET")


def form(path: str, change: Page, roles: Roles) -> Route:
    """A change. Its CSRF token comes as a field, not by the header that scripts send to the API."""
    return RouteWithRoles(path, _guarded("POST", change, roles), roles, method="POST")


def _guarded(method: str, run: Page, roles: Roles) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        caller: Caller | None = None
        try:
            caller = await authenticate(request, plane_of(request).tokens)
            if caller.role not in roles:
                raise ApiError(403, "not_allowed", f"A token of role '{caller.role}' may not do this.")
            # Read before the page is: what changes after that the page's stream tells.
            request.state.place = plane_of(request).hub.places.now()
            if method == "POST":
                signin.check_change(request, caller, await field(request, "csrf"))
            return await run(request, caller)
        except (ApiError, Refused) as error:
            status = error.status_code if isinstance(error, ApiError) else error.status
            if caller is None:
                return _way_in(request)
            return await problem(request, caller, status, error.message, error.hint)
        except Exception as error:
            if (told := database_problem(error)) is None:
                raise
            log.warning("database_unavailable", error=f"{type(error).__name__}: {error}")
            page = await problem(request, None, 503, told.message, told.hint)
            page.headers["Retry-After"] = str(RETRY_SECONDS)
            return page

    return endpoint


def _way_in(request: Request) -> Response:
    if REGIONS_HEADER in request.headers:  # a script asks: it must learn that the session is over
        return Response(status_code=401)
    if request.method != "GET":
        return RedirectResponse(url_of(request, "/sign-in"), 303)
    query = f"?{request.url.query}" if request.url.query else ""
    return RedirectResponse(url_of(request, "/sign-in", next=request.scope["path"] + query), 303)


async def problem(
    request: Request, caller: Caller | None, status: int, message: str, hint: str | None = None
) -> Response:
    if status == 404 and hint is None:
        hint = "Was the address copied whole? What was here may be older than what is kept."
    return await render(
        request, caller, "problem.html", status=status, message=message, hint=hint, back=_came_from(request)
    )


def _came_from(request: Request) -> str | None:
    """The page that sent a form, to go back to; only if it is one of ours."""
    parts = urlsplit(request.headers.get("referer", ""))
    own = request.headers.get("host", "")
    if request.method != "POST" or parts.netloc != own or parts.path.startswith("//"):
        return None
    return parts.path + (f"?{parts.query}" if parts.query else "")


def back(request: Request, path: str, said: str | None = None) -> Response:
    """Where a form leads: a page, which then says in a sentence what was done."""
    response = RedirectResponse(url_of(request, path), 303)
    if said is not None:
        text = quote(said[:LONGEST_SAID].encode()[:MOST_BYTES_SAID].decode(errors="ignore"))
        secure = signin.is_secure(request)
        response.set_cookie(SAID_COOKIE, text, max_age=60, httponly=True, samesite="strict", secure=secure)
    return response


async def field(request: Request, name: str) -> str:
    """A text of the form; empty when it is missing."""
    value = (await request.form()).get(name)
    text = clean(value) if isinstance(value, str) else ""
    if name == "reason" and len(text) > LONGEST_REASON:
        raise ApiError(422, "invalid", f"A reason has at most {LONGEST_REASON} characters; nothing was changed.")
    return text


async def fields(request: Request, name: str) -> list[str]:
    """All texts of that name, as boxes that were ticked send them."""
    given = [clean(value) for value in (await request.form()).getlist(name) if isinstance(value, str)]
    return [value for value in given if value]


def clean(text: str) -> str:
    """Without NUL, which PostgreSQL cannot store."""
    return text.replace("\0", "").strip()


def plane_of(request: Request) -> ControlPlane:
    plane: ControlPlane = request.app.state.plane
    return plane


def access_of(request: Request) -> Table:
    """The roles of every route of the app that answers."""
    table: Table = request.app.state.access
    return table


def regions(request: Request) -> frozenset[str]:
    """The live blocks that are asked for; empty: the whole page."""
    asked = request.headers.get(REGIONS_HEADER, "")
    return frozenset(name for name in asked.split(",") if REGION.match(name))


# Links and what else depends on the request. Templates call these by name; the request is the one being rendered,
# so that macros need not be handed it.
_RENDERED: ContextVar["Rendered"] = ContextVar("rendered")


@dataclass(frozen=True, slots=True)
class Rendered:
    request: Request
    caller: Caller | None
    csrf: str


def url_of(request: Request, path: str, **query: Any) -> str:
    """An address below our root. What is None or empty is left out of the query; a list is repeated."""
    if not path.startswith("/") or path.startswith("//"):
        raise ValueError(f"'{path}' is no path of ours.")
    kept = {name: value for name, value in query.items() if value not in (None, "", [], ())}
    return root_of(request.scope) + path + (f"?{urlencode(kept, doseq=True)}" if kept else "")


def _url(path: str, **query: Any) -> str:
    return url_of(_RENDERED.get().request, path, **query)


def _json_tree(value: Any) -> Markup:
    return json_tree(value, _url)


def _asset(name: str) -> str:
    return url_of(_RENDERED.get().request, assets.path_of(name))


def _csrf() -> Markup:
    return Markup('<input type="hidden" name="csrf" value="{}">').format(_RENDERED.get().csrf)


def _may(method: str, path: str) -> bool:
    """Whether the caller's role may use a route: what one may not do is absent from the page."""
    rendered = _RENDERED.get()
    return rendered.caller is not None and rendered.caller.role in allowed(access_of(rendered.request), method, path)


async def render(
    request: Request, caller: Caller | None, template: str, *, status: int = 200, **values: Any
) -> Response:
    standing = await standing_of(request)
    csrf = "" if caller is None or caller.csrf is None else signin.masked(caller.csrf)
    token = _RENDERED.set(Rendered(request, caller, csrf))
    try:
        shared = {
            "person": caller,  # Jinja means something else by `caller`
            "standing": standing,
            "navigation": [] if caller is None else navigation.groups_for(caller.role, access_of(request)),
            "entries": [] if caller is None else navigation.entries_for(caller.role, access_of(request)),
            "here": navigation.current(request.scope["path"]),
            "root": root_of(request.scope),
            "place": getattr(request.state, "place", ""),
            "version": paddock.__version__,
            "said": _notice_of(request),
        }
        asked = regions(request)
        if asked and status == 200:
            return _blocks(request, template, asked, {**shared, **values})
        content = templates().get_template(template).render(**shared, **values)
    finally:
        _RENDERED.reset(token)
    response = _zipped(request, HTMLResponse(content, status))
    if SAID_COOKIE in request.cookies:
        response.delete_cookie(SAID_COOKIE)
    return response


def _blocks(request: Request, template: str, asked: frozenset[str], values: Mapping[str, Any]) -> Response:
    """Only what is asked for, and the lines at the top, which change without anybody asking."""
    frame, own = templates().get_template("base.html"), templates().get_template(template)
    blocks = {"standing": frame.blocks["standing"]}
    # What the frame leaves to its pages (their main part, scripts) is no region: nobody read what all of it needs.
    blocks |= {name: own.blocks[name] for name in sorted(asked - frame.blocks.keys()) if name in own.blocks}
    context = own.new_context(dict(values))
    content = {"regions": {name: "".join(block(context)) for name, block in blocks.items()}}
    # What one page asks for twice as often, two pages ask for: the more are open, the longer each rests.
    rest = {"x-paddock-rest": str(-(-plane_of(request).hub.pages // REGIONS_PER_SECOND))}
    return _zipped(request, Response(orjson.dumps(content), media_type="application/json", headers=rest))


def _zipped(request: Request, response: Response) -> Response:
    response.headers.update({"content-security-policy": POLICY, "cache-control": "no-store", "vary": "accept-encoding"})
    content = bytes(response.body)
    if len(content) >= ZIPPED_FROM_BYTES and assets.accepts_gzip(request):
        # The token of the forms in it is masked anew each time, so the length tells nothing of it.
        response.body = gzip.compress(content, 4)
        response.headers.update({"content-encoding": "gzip", "content-length": str(len(response.body))})
    return response


def _notice_of(request: Request) -> str | None:
    text = request.cookies.get(SAID_COOKIE)
    return None if text is None else unquote(text)[:LONGEST_SAID]


@cache
def templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([jinja2.PackageLoader(package) for package in assets.packages_with("templates")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(words.FILTERS)
    environment.globals.update(url=_url, asset=_asset, csrf=_csrf, may=_may, json_tree=_json_tree)
    environment.globals.update(place_of=place_of, place_of_subject=place_of_subject, is_id=is_id)
    environment.globals.update(unique=lambda: f"x{secrets.token_hex(4)}", progress_of=progress_of, reported=reported)
    _load_parts(environment)
    return environment


def _load_parts(environment: jinja2.Environment) -> None:
    """The macros of templates/parts as `ui.status(…)`, everywhere and without an import: a block that is rendered
    alone has none of its template's imports."""
    parts = SimpleNamespace()
    environment.globals["ui"] = parts
    for name in environment.list_templates(
        filter_func=lambda name: name.startswith("parts/") and name.endswith(".html")
    ):
        for macro, value in vars(environment.get_template(name).module).items():
            if isinstance(value, jinja2.runtime.Macro):
                if hasattr(parts, macro):
                    raise ValueError(f"Two parts define the macro '{macro}'.")
                setattr(parts, macro, value)
