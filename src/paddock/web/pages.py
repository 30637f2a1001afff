"""Sign-in, the list of jobs, one job. Every page works without scripts; every change is a form with its CSRF token."""

import hashlib
import mimetypes
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import jinja2
import orjson
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from paddock.api import signin
from paddock.api.access import allowed
from paddock.api.auth import authenticate
from paddock.api.errors import ApiError
from paddock.api.job_json import job_json
from paddock.api.pagination import encode
from paddock.api.plane import Plane
from paddock.api.tokens import Caller
from paddock.jobs import logs, reading
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import Filter
from paddock.jobs.model import STATUSES, Job, JobId
from paddock.why import explain

POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
PAGE_LENGTH = 50
LOG_BYTES = 64 * 1024

Page = Callable[[Request, Caller], Awaitable[Response]]


def routes() -> list[Route]:
    """Each stands in `paddock.api.access.ACCESS` like every other route."""
    return [
        Route("/", _page("/", list_page), methods=["GET"]),
        Route("/jobs/{job_id}", _page("/jobs/{job_id}", job_page), methods=["GET"]),
        Route("/jobs/{job_id}/cancel", _page("/jobs/{job_id}/cancel", cancel_job), methods=["POST"]),
        Route("/jobs/{job_id}/retry", _page("/jobs/{job_id}/retry", retry_job), methods=["POST"]),
        Route("/sign-in", sign_in_page, methods=["GET"]),
        Route("/sign-in", sign_in, methods=["POST"]),
        Route("/sign-out", _page("/sign-out", sign_out), methods=["POST"]),
        Route("/static/{name}", static, methods=["GET"]),
    ]


def _page(path: str, page: Page) -> Callable[[Request], Awaitable[Response]]:
    """Lets in who may; a browser that is not signed in is shown the way. A form carries its CSRF token as a field,
    so it is checked here and not by the header that scripts send."""

    async def endpoint(request: Request) -> Response:
        try:
            caller = await authenticate(request, _plane(request).tokens)
        except ApiError:
            return RedirectResponse(f"/sign-in?{urlencode({'next': request.url.path})}", 303)
        if caller.role not in allowed(request.method, path):
            return await _problem(request, 403, f"A token of role '{caller.role}' may not do this.", None, caller)
        try:
            if request.method == "POST":
                signin.check_change(request, caller, str((await request.form()).get("csrf", "")))
            return await page(request, caller)
        except (ApiError, Refused) as error:
            status = error.status_code if isinstance(error, ApiError) else error.status
            return await _problem(request, status, error.message, error.hint, caller)

    return endpoint


async def list_page(request: Request, caller: Caller) -> Response:
    plane = _plane(request)
    asked = {name: request.query_params.get(name) or None for name in ("kind", "status", "q")}
    found = await reading.page(
        plane.core.db,
        Filter(kind=asked["kind"], status=asked["status"], q=asked["q"], owner=caller.scope),
        limit=PAGE_LENGTH,
        cursor=request.query_params.get("cursor"),
    )
    older = None
    if found.next_cursor is not None:
        older = urlencode({name: value for name, value in asked.items() if value} | {"cursor": found.next_cursor})
    kinds = sorted(kind.name for kind in plane.core.kinds if not kind.housekeeping)
    return _render(
        request,
        "jobs.html",
        caller,
        jobs=found.jobs,
        older=older,
        asked=asked,
        kinds=kinds,
        statuses=STATUSES,
        searched_back_to=found.searched_back_to,
    )


async def job_page(request: Request, caller: Caller) -> Response:
    plane = _plane(request)
    job = await _job(plane, request, caller)
    shown = orjson.loads(encode(job_json(job, plane.core.kinds)))
    timeline = orjson.loads(encode(await reading.timeline(plane.core.db, job.id)))
    log = await logs.tail(plane.core.db, job.id, limit_bytes=LOG_BYTES)
    return _render(
        request,
        "job.html",
        caller,
        job=job,
        why=explain(shown, timeline),
        timeline=timeline,
        payload=_pretty(shown["payload"]),
        result=_pretty(shown["result"]),
        report=_pretty(shown["report"]) if shown["report"] else None,
        errors=shown["errors"],
        log="".join(chunk.lines for chunk in log.chunks),
    )


async def cancel_job(request: Request, caller: Caller) -> Response:
    plane = _plane(request)
    job = await _job(plane, request, caller)
    verdict = (await plane.core.cancel([job.id], actor=caller.actor, reason="from the dashboard"))[job.id]
    if verdict == "finished":
        raise ApiError(409, "already_finished", "The job had ended already.")
    if verdict == "cleanup":
        raise ApiError(409, "cleanup_not_cancellable", "A cleanup is not cancelled; it ends by itself.")
    return RedirectResponse(f"/jobs/{job.id}", 303)


async def retry_job(request: Request, caller: Caller) -> Response:
    plane = _plane(request)
    job = await _job(plane, request, caller)
    new = await plane.core.retry(job.id, actor=caller.actor, reason="from the dashboard")
    return RedirectResponse(f"/jobs/{new.id}", 303)


async def sign_in_page(request: Request) -> Response:
    return _render(request, "sign_in.html", None, next=_local_path(request.query_params.get("next")), problem=None)


async def sign_in(request: Request) -> Response:
    signin.check_same_origin(request)
    tokens, form = _plane(request).tokens, await request.form()
    code, token = _text(form, "code"), _text(form, "token")
    session = await signin.exchange_link(tokens, code) if code else await signin.sign_in(tokens, token)
    target = _local_path(_text(form, "next"))
    if session is None:
        problem = (
            "This link was used already or is older than five minutes." if code else "This token is not known here."
        )
        return _render(request, "sign_in.html", None, status=401, next=target, problem=problem)
    response = RedirectResponse(target, 303)
    signin.set_cookie(response, request, session)
    return response


async def sign_out(request: Request, caller: Caller) -> Response:
    session_id = signin.session_id(request)
    if session_id is not None:
        await signin.sign_out(_plane(request).tokens, session_id)
    response = RedirectResponse("/sign-in", 303)
    signin.clear_cookie(response, request)
    return response


async def static(request: Request) -> Response:
    name = str(request.path_params["name"])
    if name not in _assets():
        raise HTTPException(404)
    media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
    # The address changes with the content: see `asset`.
    return Response(_assets()[name], media_type=media_type, headers={"cache-control": "public, max-age=31536000"})


async def _job(plane: Plane, request: Request, caller: Caller) -> Job:
    try:
        job = await plane.core.job(JobId(UUID(str(request.path_params["job_id"]))))
    except ValueError:
        job = None
    if job is None or not caller.sees(job.owner):
        raise ApiError(404, "not_found", "There is no such job.")
    return job


async def _problem(
    request: Request, status: int, message: str, hint: str | None, caller: Caller | None = None
) -> Response:
    return _render(request, "problem.html", caller, status=status, message=message, hint=hint)


def _plane(request: Request) -> Plane:
    plane: Plane = request.app.state.plane
    return plane


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def _local_path(path: str | None) -> str:
    """Where to go after signing in: on this server only. '//other' and '/\\other' lead elsewhere."""
    if path is None or not path.startswith("/") or path[1:2] in ("/", "\\"):
        return "/"
    return path


def _render(request: Request, template: str, caller: Caller | None, *, status: int = 200, **values: Any) -> Response:
    content = _templates().get_template(template).render(caller=caller, **values)
    return HTMLResponse(content, status, headers={"content-security-policy": POLICY, "cache-control": "no-store"})


@cache
def _assets() -> dict[str, bytes]:
    folder = files("paddock.web").joinpath("static")
    return {item.name: item.read_bytes() for item in folder.iterdir() if item.is_file()}


def asset(name: str) -> str:
    return f"/static/{name}?{hashlib.sha256(_assets()[name]).hexdigest()[:12]}"


@cache
def _templates() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paddock.web"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["asset"] = asset
    environment.filters["ago"] = ago
    environment.filters["exact"] = exact
    return environment


def _pretty(value: Any) -> str:
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()


def exact(at: datetime | str | None) -> str:
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return "" if at is None else at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(at: datetime | str | None) -> str:
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    if at is None:
        return ""
    seconds = (datetime.now(UTC) - at).total_seconds()
    size = abs(seconds)
    for length, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if size >= length:
            text = f"{size / length:.0f} {name}"
            break
    else:
        text = f"{size:.0f} s"
    return f"{text} ago" if seconds >= 0 else f"in {text}"
