"""Every error leaves as {"error": {"code", "message", "details", "hint"?}}, whoever raised it; on foreign paths as
{"error": "message", "hint"?} with the code in a header, as the clients of those paths expect.

What is refused on purpose is an `ApiError` here or a `Refused` of the core. A database that is away or refuses is a
503 that says so. Anything else is a bug: the log has it with its request id, the answer shows no more than that id.
"""

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.database_problems import RETRY_SECONDS, database_problem
from paddock.api.foreign import is_foreign
from paddock.field_errors import listed
from paddock.jobs.errors import Draining, LockHeld, Refused
from paddock.jobs.link import LinkRefused, SessionUnknown
from paddock.log import scrub

# How many fields the sentence names; `details` has them all.
MAX_LISTED = 20
CODE_HEADER = "X-Error-Code"

log = structlog.get_logger()


class ApiError(HTTPException):
    """A refusal by the API itself. An HTTPException, because FastAPI lets only those out of its body parsing."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, dict(headers) if headers else None)
        self.code = code
        self.message = message
        self.hint = hint
        self.details = details or {}


def not_found(what: str) -> ApiError:
    """Also for what the caller may not see: the two must look alike."""
    return ApiError(404, "not_found", f"There is no such {what}.")


def invalid(fields: Sequence[Mapping[str, str]], hint: str | None = None) -> ApiError:
    problems = " ".join(f"{field['field']}: {field['message']}" for field in fields[:MAX_LISTED])
    return ApiError(
        422, "invalid", f"The request is not valid: {problems}", hint=hint, details={"fields": list(fields)}
    )


def invalid_field(field: str, message: str) -> ApiError:
    return invalid([{"field": field, "message": message}])


def error_response(
    status: int,
    code: str,
    message: str,
    *,
    path: str = "",
    hint: str | None = None,
    details: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Response:
    if is_foreign(path):
        plain = {"error": message} if hint is None else {"error": message, "hint": hint}
        told = {**(headers or {}), CODE_HEADER: code}
        return Response(orjson.dumps(plain), status, told, media_type="application/json")
    error: dict[str, Any] = {"code": code, "message": message, "details": details or {}}
    if hint is not None:
        error["hint"] = hint
    content = orjson.dumps({"error": error}, default=str)
    return Response(content, status, headers, media_type="application/json")


def add_handlers(app: FastAPI) -> None:
    app.exception_handler(HTTPException)(_http_error)
    app.exception_handler(RequestValidationError)(_validation_error)
    app.exception_handler(Refused)(_refused)
    app.exception_handler(SessionUnknown)(_session_unknown)
    app.exception_handler(LinkRefused)(_link_refused)


FRAMEWORK_ERRORS: Mapping[int, tuple[str, str]] = {
    400: ("malformed", "The request could not be read."),
    404: ("not_found", "There is nothing at this address."),
    405: ("method_not_allowed", "This address does not answer to that method."),
}


async def _http_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ApiError):
        return error_response(
            error.status_code,
            error.code,
            error.message,
            path=request.url.path,
            hint=error.hint,
            details=error.details,
            headers=error.headers,
        )
    assert isinstance(error, HTTPException)
    lost = getattr(request.app.state, "lost", None)
    if lost is not None and error.status_code in (404, 405) and _by_a_browser(request):
        page: Response = await lost(request, error.status_code)
        page.headers.update(error.headers or {})
        return page
    phrase = HTTPStatus(error.status_code).phrase
    code, message = FRAMEWORK_ERRORS.get(error.status_code, (phrase.lower().replace(" ", "_"), f"{phrase}."))
    return error_response(error.status_code, code, message, path=request.url.path, headers=error.headers)


def _by_a_browser(request: Request) -> bool:
    """Somebody went there, and no program asked."""
    if is_foreign(request.url.path):
        return False
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = [{"field": _field(found.path), "message": found.sentence} for found in listed(error.errors())]
    return await _http_error(request, invalid(fields))


def _field(location: Sequence[str]) -> str:
    """('body', 'jobs', '3', 'kind') -> 'jobs.3.kind': the first part says only where FastAPI looked."""
    return ".".join(location[1:])[:200] or location[0]


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    wait = error.retry_after
    if isinstance(error, Draining):
        wait = round(request.app.state.plane.config.drain_retry_after_seconds)
    headers = {} if wait is None else {"Retry-After": str(wait)}
    return error_response(
        error.status,
        error.code,
        scrub(error.message, limit=4000),
        path=request.url.path,
        hint=error.hint,
        details={**error.details, **_holder(request, error)},
        headers=headers,
    )


def _holder(request: Request, error: Refused) -> dict[str, Any]:
    """A lock's holder, for those who may see it: to others even its id would tell of somebody's work."""
    if not isinstance(error, LockHeld) or error.holder is None or error.holder_owner is None:
        return {}
    caller = getattr(request.state, "caller", None)
    if caller is None or not caller.sees(error.holder_owner):
        return {}
    return {"holder": str(error.holder), "holder_owner": error.holder_owner}


async def _session_unknown(_request: Request, _error: Exception) -> Response:
    return error_response(404, "session_unknown", "There is no such session.", hint="Register again.")


async def _link_refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, LinkRefused)
    return error_response(error.status or 403, "refused", str(error))


def unexpected(error: Exception, request_id: str, path: str = "") -> Response:
    """The answer to what nobody translated."""
    if (problem := database_problem(error)) is not None:
        log.warning("database_unavailable", error=f"{type(error).__name__}: {error}")
        return error_response(
            503,
            problem.code,
            problem.message,
            path=path,
            hint=problem.hint,
            headers={"Retry-After": str(RETRY_SECONDS)},
        )
    log.error("request_failed", exc_info=error)
    return error_response(
        500,
        "internal_error",
        "Something is wrong inside Paddock; this is a bug.",
        path=path,
        hint=f"The server's log tells more under request id {request_id}.",
        details={"request_id": request_id},
    )
