"""What an HTTP answer means that is not a page."""

import random
import time
from email.utils import parsedate_to_datetime

import aiohttp

from paddock.engines.engine import QueryRefused
from paddock.engines.trino.errors import plain
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError

QUERY_LOST = "query_lost"


def soon() -> float:
    return random.uniform(0.05, 0.1)


def retry_after(value: str | None) -> float:
    """Seconds, or a date; a second where it is neither."""
    if value is None:
        return 1.0
    try:
        return max(0.0, min(float(value), 86400.0))
    except ValueError:
        pass
    try:
        return max(0.0, min(parsedate_to_datetime(value).timestamp() - time.time(), 86400.0))
    except (ValueError, TypeError):
        return 1.0


def never_mends(problem: BaseException) -> None:
    if isinstance(problem, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientConnectorSSLError)):
        trusted = not isinstance(problem, aiohttp.ClientConnectorCertificateError)
        raise PermanentRunnerError(
            "Trino does not speak TLS at its address." if trusted else "The certificate of Trino is not trusted.",
            code="engine_certificate",
            hint="Name the authority's file as `ca_file` of this engine in paddock.toml.",
        ) from None
    if isinstance(problem, (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError)):
        raise PermanentRunnerError("Trino's address is not a URL.", code="engine_foreign_address") from None


def refusal(status: int, body: bytes, base: str) -> InfrastructureError:
    text = plain(body[:4000].decode("utf-8", "replace"))
    if status in (404, 410):
        return TransientResourceError(
            "Trino no longer knows the query: it was restarted, or the query was left alone too long.",
            code=QUERY_LOST,
            hint="The query starts again from the beginning.",
        )
    if status == 401:
        return PermanentRunnerError(
            f"Trino at {base} refused the login.",
            code="engine_login_refused",
            hint="Check `user` and the password or token of this engine.",
        )
    if "Access Denied" in text:
        # An unknown role is answered so, before there is a query: HTTP 500 and a stack trace.
        denied = text[text.index("Access Denied") :].split(" at ", 1)[0]
        return QueryRefused(
            f"Trino: {denied[:300]}.",
            code="role_denied",
            hint="Ask for the role to be granted, or send another X-Use-Case-Id.",
        )
    return PermanentRunnerError(
        f"Trino at {base} answered HTTP {status}: {text[:200] or 'no text'}",
        code="engine_error",
        hint="Trino's log says more.",
    )
