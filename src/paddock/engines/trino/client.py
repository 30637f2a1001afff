"""Trino's HTTP protocol, on asyncio.

What it keeps to: nextUri is followed until it is absent, and an `error` decides failure, never a state. Whatever
belongs to a caller travels with each request and never on the shared session. Addresses that Trino hands out are
capabilities: they are followed only on the coordinator's own hosts, and never logged or put into a message. A GET may
be repeated; so may a POST, because Trino runs nothing before the first GET. Patience is bounded by time.
"""

import asyncio
import time
from base64 import b64encode
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from urllib.parse import quote, urljoin

import aiohttp
import orjson
from yarl import URL

from paddock.config import ConfigError
from paddock.engines.settings import TrinoSettings
from paddock.engines.trino.answers import never_mends, refusal, retry_after, soon
from paddock.engines.trino.decoding import BadPage, split_page
from paddock.engines.trino.sessions import Sessions
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError

# Without it Trino rounds every time to milliseconds and does not say so.
CAPABILITIES = "PARAMETRIC_DATETIME"
BUSY = (502, 503, 504)
REDIRECTS = (301, 302, 303, 307, 308)
MOST_REDIRECTS = 5
# A page is about 1 MB; one with a single enormous row is as large as that row.
LARGEST_PAGE = 256 << 20
# Nothing was started yet: give the job back soon rather than hold its place.
POST_PATIENCE = 10.0
STOP_SECONDS = 5.0
MOST_GARBLED = 5


@dataclass(frozen=True, slots=True)
class Call:
    """Who asks. One for each query, made by `TrinoClient.call`."""

    user: str
    headers: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class TrinoAnswer:
    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Page:
    """`rows` is the JSON text of direct rows; spooled ones are named in the envelope's `data`."""

    envelope: Mapping[str, Any] = field(repr=False)
    rows: bytes | None = field(repr=False)

    @property
    def has_rows(self) -> bool:
        return self.rows is not None or self.envelope.get("data") is not None


class Silence(Exception):
    """No answer in time. `error_type` is the name of what the transport said."""

    def __init__(self, error_type: str) -> None:
        super().__init__(f"Trino did not answer in time ({error_type}).")
        self.error_type = error_type


class LargePage(Exception):
    """A page that is larger than was wanted. Trino gives it again until the one after it is asked for."""

    def __init__(self, beginning: bytes) -> None:
        super().__init__()
        self.spooled = b'"data":[' not in beginning


class TrinoClient:
    def __init__(self, settings: TrinoSettings) -> None:
        self.settings = settings
        self.base = settings.url.rstrip("/")
        self._origins = {_origin(URL(settings.url)), *(_origin(URL(other)) for other in settings.other_urls)}
        self.sessions = Sessions(settings.ca_file)
        self._tasks: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"TrinoClient({self.base})"

    def call(
        self,
        *,
        user: str | None = None,
        role: str | None = None,
        job: str = "",
        catalog: str | None = None,
        schema: str | None = None,
        session: Mapping[str, str] | None = None,
    ) -> Call:
        settings = self.settings
        user = user or settings.user
        properties = {**settings.session, **(session or {})}
        headers = {
            "X-Trino-User": user,
            "X-Trino-Source": settings.source,
            "X-Trino-Client-Tags": ",".join(settings.client_tags),
            "X-Trino-Client-Capabilities": CAPABILITIES,
            "X-Trino-Catalog": catalog or settings.catalog or "",
            # The configured schema is one of the configured catalog.
            "X-Trino-Schema": schema or (settings.schema_ if not catalog else None) or "",
            "X-Trino-Role": f"{settings.role_catalog}={quote(f'ROLE{{{role}}}', safe='')}" if role else "",
            "X-Trino-Session": ",".join(f"{name}={quote(value, safe='')}" for name, value in properties.items()),
            "X-Trino-Client-Info": job,
            "X-Trino-Trace-Token": job,
        }
        return Call(user, {name: _header(name, value) for name, value in headers.items() if value})

    async def submit(self, sql: str, call: Call, encodings: Sequence[str] = ()) -> Page:
        """Trino knows the query after this, and runs it when the page's nextUri is asked for."""
        headers = {**call.headers, "Content-Type": "text/plain; charset=utf-8"}
        if encodings:
            headers["X-Trino-Query-Data-Encoding"] = ",".join(encodings)
        return await self._page("POST", f"{self.base}/v1/statement", headers, data=sql.encode(), patience=POST_PATIENCE)

    async def next_page(self, uri: str, call: Call, *, retry_silence: bool, most: int = LARGEST_PAGE) -> Page:
        return await self._page("GET", uri, self.following(call), retry_silence=retry_silence, most=most)

    async def stop(self, uri: str, call: Call) -> None:
        """What is gone already needs no stopping."""
        self.check_address(uri)
        try:
            await self.ask("DELETE", uri, self.following(call), patience=STOP_SECONDS)
        except Silence as silence:
            raise TransientResourceError(str(silence), code="engine_unavailable", budget="cluster") from None

    def stop_soon(self, uri: str, call: Call) -> "asyncio.Task[None]":
        """In a task of its own: whoever waits for it may be cancelled, and the query must still be stopped."""

        async def stop() -> None:
            with suppress(InfrastructureError, TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    await self.stop(uri, call)

        return self._start_task(stop())

    def in_background(self, work: Coroutine[Any, Any, None]) -> None:
        _ = self._start_task(work)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def beat(self, uri: str, call: Call) -> bool:
        """Tells Trino that somebody still wants the result. False: it does not know this way (before 475)."""
        try:
            answer = await self._once("HEAD", uri, self.following(call), None)
        except (Silence, InfrastructureError, aiohttp.ClientError, OSError):
            return True
        return answer.status not in (404, 405)

    async def info(self, query_id: str, call: Call) -> Mapping[str, Any] | None:
        """What Trino knows of a query; None when it knows nothing any more."""
        uri = f"{self.base}/v1/query/{quote(query_id, safe='')}?pruned=true"
        try:
            answer = await self.ask("GET", uri, dict(call.headers), retry_silence=True)
        except Silence as silence:
            raise TransientResourceError(str(silence), code="engine_unavailable", budget="cluster") from None
        if answer.status in (403, 404, 410):
            return None
        return self._object(answer)

    async def version(self) -> Mapping[str, Any]:
        answer = await self.ask("GET", f"{self.base}/v1/info", {}, patience=2.0)
        return self._object(answer)

    async def close(self) -> None:
        while self._tasks:
            await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in self._tasks:
                task.cancel()
            await asyncio.sleep(0)
        await self.sessions.close()

    def check_address(self, uri: str) -> None:
        """Where Trino sends us next must be Trino."""
        origin = _origin(URL(uri, encoded=True))
        if origin in self._origins:
            return
        hint = "If this is the same cluster, name it in `other_urls` of this engine in paddock.toml."
        if ("https", *origin[1:]) in self._origins or origin[1] in {known[1] for known in self._origins}:
            hint = "Behind a proxy Trino needs http-server.process-forwarded=true. " + hint
        raise PermanentRunnerError(
            f"Trino at {self.base} answered with an address on {origin[0]}://{origin[1]}:{origin[2]}, which is not "
            "the coordinator's: nothing was sent there.",
            code="engine_foreign_address",
            hint=hint,
        )

    def following(self, call: Call) -> dict[str, str]:
        return {"X-Trino-User": call.headers["X-Trino-User"]}

    def _login(self) -> dict[str, str]:
        # Read for each request: a mounted secret changes while a query runs.
        settings = self.settings
        try:
            token, password = settings.token.read("The token"), settings.password.read("The password")
        except ConfigError as missing:
            raise PermanentRunnerError(
                str(missing),
                code="engine_login_missing",
                hint="Give the worker the variable or file, and restart it.",
            ) from None
        if token:
            return {"Authorization": f"Bearer {_header('The token', token)}"}
        if password:
            return {"Authorization": "Basic " + b64encode(f"{settings.user}:{password}".encode()).decode()}
        return {}

    async def _page(
        self,
        method: str,
        uri: str,
        headers: Mapping[str, str],
        *,
        data: bytes | None = None,
        patience: float | None = None,
        retry_silence: bool = False,
        most: int = LARGEST_PAGE,
    ) -> Page:
        """A body that is no whole page is asked for again, as a broken connection is."""
        for _ in range(MOST_GARBLED):
            answer = await self.ask(
                method, uri, headers, data=data, patience=patience, retry_silence=retry_silence, most=most
            )
            self.expect_ok(answer)
            try:
                envelope, rows = split_page(answer.body)
            except BadPage:
                await asyncio.sleep(soon())
                continue
            if isinstance(envelope.get("id"), str):
                return Page(envelope, rows)
            await asyncio.sleep(soon())
        raise BadPage("Trino's answers were cut off or were not Trino's, several times in a row.")

    async def ask(
        self,
        method: str,
        uri: str,
        headers: Mapping[str, str],
        *,
        data: bytes | None = None,
        patience: float | None = None,
        retry_silence: bool = False,
        most: int = LARGEST_PAGE,
    ) -> TrinoAnswer:
        """One request to the coordinator, repeated while it is busy or away, for `patience` seconds."""
        end = time.monotonic() + (self.settings.patience_seconds if patience is None else patience)
        attempt = 0
        while True:
            attempt += 1
            wait = soon()
            try:
                answer = await self._once(method, uri, headers, data, most)
            except Silence:
                if not retry_silence or time.monotonic() >= end:
                    raise
            except (aiohttp.ClientError, OSError) as problem:
                never_mends(problem)
                wait = min(attempt * wait, 2.0)
                if time.monotonic() + wait >= end:
                    raise self._away(type(problem).__name__) from None
            else:
                if answer.status == 429:
                    wait = retry_after(answer.headers.get("Retry-After"))
                elif answer.status not in BUSY:
                    return answer
                if time.monotonic() + wait >= end:
                    raise self._away(f"HTTP {answer.status}", wait if answer.status == 429 else None)
            await asyncio.sleep(wait)

    def _away(self, why: str, wait: float | None = None) -> TransientResourceError:
        return TransientResourceError(
            f"Trino at {self.base} cannot be reached: {why}.",
            code="engine_unavailable",
            hint="Check that the cluster runs and that the worker may reach it.",
            budget="cluster",
            delay=timedelta(seconds=wait) if wait else None,
        )

    async def _once(
        self, method: str, uri: str, headers: Mapping[str, str], data: bytes | None, most: int = LARGEST_PAGE
    ) -> TrinoAnswer:
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **headers, **self._login()}
        timeout = aiohttp.ClientTimeout(total=self.settings.request_timeout_seconds)
        for _ in range(MOST_REDIRECTS):
            self.check_address(uri)
            try:
                async with self.sessions.coordinator.request(
                    method, URL(uri, encoded=True), headers=sent, data=data, timeout=timeout, allow_redirects=False
                ) as response:
                    body = await bounded_body(response, most)
                    answer = TrinoAnswer(response.status, dict(response.headers), body)
            except TimeoutError as silence:
                raise Silence(type(silence).__name__) from None
            if LARGEST_PAGE > most < len(body):
                raise LargePage(body)
            if len(body) > LARGEST_PAGE:
                raise PermanentRunnerError(
                    f"A page of more than {LARGEST_PAGE:,} bytes was not read.",
                    code="page_too_large",
                    hint="Look for a row with an enormous value, and leave the column out or cut it.",
                )
            location = answer.headers.get("Location")
            if answer.status not in REDIRECTS or not location:
                return answer
            uri = urljoin(uri, location)
        raise PermanentRunnerError(
            f"Trino at {self.base} redirects without end.",
            code="engine_redirects",
            hint="Check `url` of this engine in paddock.toml and the proxy in front of Trino.",
        )

    def _object(self, answer: TrinoAnswer) -> Mapping[str, Any]:
        self.expect_ok(answer)
        try:
            found = orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            found = None
        if not isinstance(found, dict):
            raise BadPage(f"What answers at {self.base} is not a Trino.")
        return found

    def expect_ok(self, answer: TrinoAnswer) -> None:
        if answer.status != 200:
            raise refusal(answer.status, answer.body, self.base)


def _origin(url: URL) -> tuple[str, str, int]:
    return url.scheme, url.host or "", url.port or 0


def _header(name: str, value: str) -> str:
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise PermanentRunnerError(f"{name} has characters that no header can carry.", code="bad_header")
    return value


async def bounded_body(response: aiohttp.ClientResponse, most: int) -> bytes:
    """All of it, or a little more than `most`."""
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        parts.append(part)
        if size > most:
            response.close()
            break
    return parts[0] if len(parts) == 1 else b"".join(parts)
