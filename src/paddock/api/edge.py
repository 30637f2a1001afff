"""What every request passes: request id, Host, body limit, security headers, metrics, and the last net for errors.

Plain ASGI, no framework middleware: this is paid by each claim and each beat.
"""

import ipaddress
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import structlog
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from paddock import tracing
from paddock.api import cors
from paddock.api.bodies import too_large
from paddock.api.errors import ApiError, error_response, unexpected
from paddock.config import Config
from paddock.metrics import Metrics

INTERNAL_BODY_BYTES = 16 * 1024 * 1024
REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,64}\Z")
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
# What X-Forwarded-Prefix may say. It becomes the beginning of links: '//elsewhere' must not pass.
PREFIX = re.compile(r"(/[A-Za-z0-9._~-]+)+\Z")

SECURITY_HEADERS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
# For whoever opens an API address in a browser; the dashboard's pages bring a policy of their own.
API_POLICY = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
NO_STORE = (b"cache-control", b"no-store")
# In the scope of each request: the path before our own paths, as the browser sees it.
ROOT = "paddock.root"


class Edge:
    def __init__(self, app: ASGIApp, config: Config, metrics: Metrics, host: str | None = None) -> None:
        self.app = app
        self.limit = config.max_body_bytes
        self.metrics = metrics
        self.hosts = allowed_hosts(config, host)
        self.origins = cors.origins_by_path(config)
        self.root = "" if config.public_url is None else urlsplit(config.public_url).path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return  # Nothing here speaks WebSocket: the server answers the handshake with 500 for us.
        if self.root and f"{scope['path']}/".startswith(f"{self.root}/"):
            # A proxy that leaves its sub-path on; most take it off.
            scope = {**scope, "path": scope["path"][len(self.root) :] or "/"}
        await _Exchange(self, scope, receive, send).run()


class _Exchange:
    """One request and its response."""

    def __init__(self, edge: Edge, scope: Scope, receive: Receive, send: Send) -> None:
        self.edge = edge
        self.scope = scope
        self._receive = receive
        self._send = send
        self.headers = Headers(scope=scope)
        self.internal = scope["path"].startswith("/internal/")
        self.limit = max(edge.limit, INTERNAL_BODY_BYTES) if self.internal else edge.limit
        self.cors = cors.headers(edge.origins, scope["path"], self.headers)
        self.read = 0
        self.status = 0
        scope[ROOT] = edge.root or _forwarded_prefix(self.headers)
        given = self.headers.get("x-request-id", "")
        self.request_id = given if REQUEST_ID.match(given) else uuid4().hex

    async def run(self) -> None:
        started = time.perf_counter()
        tokens = structlog.contextvars.bind_contextvars(request_id=self.request_id)
        try:
            await (self._answer() if self.internal else self._traced())
        finally:
            structlog.contextvars.reset_contextvars(**tokens)
            route = self._route()
            self.edge.metrics.answered(route, self.scope["method"], self.status or 499, time.perf_counter() - started)

    def _route(self) -> str:
        """The template, once one matched: what was asked for itself would be a label for each job."""
        return getattr(self.scope.get("route"), "path", "unmatched")

    async def _traced(self) -> None:
        """A worker's calls are no trace of their own: a job's trace goes on in its handler."""
        with tracing.span(f"http {self.scope['method']}", parent=self.headers.get("traceparent")) as span:
            await self._answer()
            span.set(route=self._route(), status=self.status, request_id=self.request_id)

    async def _answer(self) -> None:
        try:
            self._check()
            if self.cors and cors.is_preflight(self.scope["method"], self.headers):
                await cors.preflight()(self.scope, self.receive, self.send)
            else:
                await self.edge.app(self.scope, self.receive, self.send)
        except ApiError as error:
            if self.status == 0:
                response = error_response(
                    error.status_code,
                    error.code,
                    error.message,
                    path=self.scope["path"],
                    hint=error.hint,
                    details=error.details,
                    headers=error.headers,
                )
                await response(self.scope, self.receive, self.send)
        except Exception as error:
            response = unexpected(error, self.request_id, self.scope["path"])
            if self.status == 0:
                await response(self.scope, self.receive, self.send)
            # Else the answer is under way: the server sees it unfinished and closes the connection.

    def _check(self) -> None:
        if self.edge.hosts is not None and host_name(self.headers.get("host", "")) not in self.edge.hosts:
            raise ApiError(
                400,
                "host_not_allowed",
                "This server does not answer to that Host.",
                hint="Use localhost, or add the name to PADDOCK_ALLOWED_HOSTS.",
            )
        if "\0" in self.scope["path"] or b"%00" in self.scope.get("query_string", b""):
            raise ApiError(400, "malformed", "An address may not hold a NUL character.")
        length = self.headers.get("content-length")
        if length is not None and length.isdecimal() and int(length[:20]) > self.limit:
            raise too_large(self.limit)

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self.read += len(message.get("body", b""))
            if self.read > self.limit:
                raise too_large(self.limit)
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message["headers"] = [*message.get("headers", ()), *self._extra_headers(message)]
        await self._send(message)

    def _extra_headers(self, message: Message) -> Iterable[tuple[bytes, bytes]]:
        yield b"x-request-id", self.request_id.encode()
        if self.internal:
            return
        yield from SECURITY_HEADERS
        yield from self.cors
        present = {name.lower() for name, _ in message.get("headers", ())}
        for name, value in (API_POLICY, NO_STORE):
            if name not in present:
                yield name, value


def root_of(scope: Mapping[str, Any]) -> str:
    """The sub-path a proxy serves us under, '' or like '/paddock': that of `public_url`, else X-Forwarded-Prefix.
    The header needs no trust: no page can make a browser send it, and what is made of it is never stored."""
    root: str = scope.get(ROOT, "")
    return root


def _forwarded_prefix(headers: Headers) -> str:
    given = headers.get("x-forwarded-prefix", "").rstrip("/")
    return given if PREFIX.match(given) else ""


def allowed_hosts(config: Config, host: str | None) -> frozenset[str] | None:
    """The names to answer to; None: any. On loopback a page elsewhere could point its own name at us (DNS rebinding)."""
    named = {host_name(name) for name in config.allowed_hosts}
    if config.public_url is not None:
        named.add(urlsplit(config.public_url).hostname or "")
    if host is not None and is_loopback(host):
        return frozenset(LOOPBACK_NAMES | named | {host_name(host)})
    return frozenset(named | LOOPBACK_NAMES) if config.allowed_hosts else None


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def host_name(header: str) -> str:
    """Without port and brackets: '[::1]:8080' -> '::1'."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    name, _, port = header.rpartition(":")
    return (name if port.isdecimal() and ":" not in name else header).lower()
