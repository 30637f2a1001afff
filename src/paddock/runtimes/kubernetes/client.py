"""One request after the other to the API server: bounded, paced, counted.

Promises
- A create is strict: a field that the server does not know is refused, not left out. It is sent once; an answer that did not
  come whole raises an `ApiError` in doubt, and `creating` finds out.
- A delete names the UID: what has the name by then is not meant, and that is success, as is 404.
- Reads and deletes that may pass are repeated, three times in ten seconds. After 429 no create of this process is sent until
  the server wants one again.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import aiohttp
import orjson

from paddock.clock import Clock, SystemClock
from paddock.runtimes.kubernetes.access import Access, CredentialMissing
from paddock.runtimes.kubernetes.errors import ApiError, status_in
from paddock.runtimes.kubernetes.metrics import KubernetesMetrics, kubernetes_metrics
from paddock.runtimes.kubernetes.pacing import Pacing
from paddock.runtimes.kubernetes.resources import Resource

Object = dict[str, Any]
PAGE = 500
SECONDS = 10.0
LIST_SECONDS = 30.0
# How often and how long what may pass is tried.
TRIES, TRIES_SECONDS = 3, 10.0
PAUSES = (0.5, 2.0)
# A server that says 429 without a time means a moment.
HOLD_SECONDS = 5.0
MOST_HOLD_SECONDS = 120.0
LARGE = 256 << 10
# A log whose lines are too long for the limit is asked for this many times fewer of them.
FEWER = 8
# How long a watch lives, and how long one is believed that says nothing: bookmarks come about once a minute.
WATCH_SECONDS = 290
SILENT_SECONDS = 120.0
MOST_LINE = 16 << 20
STRATEGIC_MERGE = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Page:
    items: Sequence[Object]
    # What the list was true of, and where it goes on; "": this was the last page.
    version: str
    after: str


class Kubernetes:
    def __init__(self, access: Access, *, clock: Clock | None = None, metrics: KubernetesMetrics | None = None) -> None:
        self.access = access
        self.clock = clock or SystemClock()
        self.metrics = metrics or kubernetes_metrics()
        self.pacing = Pacing(self.clock, self.metrics)
        # What time it was there at its last answer.
        self.server_date: str | None = None
        self._session: aiohttp.ClientSession | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Object | None:
        """None: the server says that there is none."""
        try:
            return await self._repeated("get", resource.name, resource.path(namespace, name))
        except ApiError as problem:
            if problem.code == 404:
                return None
            raise

    async def version(self) -> Object:
        return await self._repeated("get", "version", "/version")

    async def log(self, resource: Resource, namespace: str, name: str, *, container: str, most: int) -> str | None:
        """The last bytes of it, that many at most. None: there is no such pod, or nothing of it was ever written."""
        # Lines are asked for, since a limit of bytes keeps the first ones. Where the lines are so long that the limit cut off
        # the last of them, fewer are asked for.
        lines, limit = max(1, most // 100), 16 * most
        path = resource.path(namespace, name, "log")
        try:
            while True:
                params = {"container": container, "tailLines": str(lines), "limitBytes": str(limit)}
                body = await self._repeated_bytes("get", "pods/log", path, params, accept="*/*")
                if len(body) < limit or lines == 1:
                    return _last(body, most).decode("utf-8", "replace")
                lines = max(1, lines // FEWER)
        except ApiError as problem:
            if problem.code in (400, 404):
                return None
            raise

    async def list_page(
        self,
        resource: Resource,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
        after: str = "",
        limit: int = PAGE,
    ) -> Page:
        """In the order of names. A list that takes too long ends in 410 in its middle: it is not whole then."""
        params = {"limit": str(limit), **_selectors(labels, fields), **({"continue": after} if after else {})}
        found = await self._repeated("list", resource.name, resource.path(namespace), params, seconds=LIST_SECONDS)
        metadata = found.get("metadata") or {}
        return Page(found.get("items") or (), metadata.get("resourceVersion", ""), metadata.get("continue") or "")

    async def list(
        self,
        resource: Resource,
        namespace: str,
        *,
        labels: Mapping[str, str] | None = None,
        fields: Mapping[str, str] | None = None,
    ) -> Sequence[Object]:
        """All of them, or an error."""
        found: list[Object] = []
        page = await self.list_page(resource, namespace, labels=labels, fields=fields)
        found += page.items
        while page.after:
            page = await self.list_page(resource, namespace, labels=labels, fields=fields, after=page.after)
            found += page.items
        return found

    async def create(self, resource: Resource, namespace: str | None, manifest: Mapping[str, Any]) -> Object:
        """Sent at most once. Use `creating.ensure` for what must not be there twice."""
        what = f"{resource.name} {(manifest.get('metadata') or {}).get('name', '')}".strip()
        if held := self.pacing.creates_held:
            said = {"code": 429, "reason": "TooManyRequests", "message": "The API server has too much to do."}
            raise ApiError(429, cast(Any, said), verb="create", what=what, retry_after=held)
        params = {"fieldValidation": "Strict", "fieldManager": "paddock"}
        return _read(await self._ask("create", resource.name, "POST", resource.path(namespace), params, body=manifest))

    async def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        *,
        uid: str,
        grace_seconds: int | None = None,
        propagation: str | None = None,
    ) -> None:
        """Asks for its end, and does not wait for it."""
        options: Object = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        if propagation is not None:
            options["propagationPolicy"] = propagation
        try:
            await self._repeated_bytes(
                "delete", resource.name, resource.path(namespace, name), {}, method="DELETE", body=options
            )
        except ApiError as problem:
            if problem.code == 404 or (problem.code == 409 and problem.reason == "Conflict"):
                return
            raise

    async def patch(
        self, resource: Resource, namespace: str, name: str, subresource: str, change: Mapping[str, Any]
    ) -> Object:
        what = f"{resource.name}/{subresource}"
        path = resource.path(namespace, name, subresource)
        return _read(await self._ask("patch", what, "PATCH", path, {}, body=change, content=STRATEGIC_MERGE))

    async def watch(
        self, resource: Resource, namespace: str, *, labels: Mapping[str, str], version: str
    ) -> AsyncIterator[Object]:
        """What changed since that version, and bookmarks. Ends when the server ends it; a line that broke, or was silent for
        too long, raises an `ApiError` without a code."""
        await self.pacing.turn()
        params = {
            **_selectors(labels, None),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_SECONDS),
        }
        path, code = resource.path(namespace), None
        what = f"{resource.name} of {namespace}"
        try:
            async with self._opened().get(
                self.access.server + path,
                params=params,
                headers=await self._headers("application/json", "watch", what),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=SECONDS, sock_read=SILENT_SECONDS),
            ) as response:
                code = response.status
                if code != 200:
                    raise self._refusal(response, await response.read(), "watch", what)
                self.metrics.answered("watch", resource.name, code, 0)
                async for line in _lines(response.content):
                    yield orjson.loads(line)
        except ApiError as problem:
            self.metrics.answered("watch", resource.name, problem.code, 0)
            raise
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as problem:
            if code is None:
                self.metrics.answered("watch", resource.name, None, 0)
            raise _no_answer(problem, "watch", what) from problem

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _repeated(
        self, verb: str, what: str, path: str, params: Mapping[str, str] | None = None, *, seconds: float = SECONDS
    ) -> Object:
        body = await self._repeated_bytes(verb, what, path, params or {}, seconds=seconds)
        return _read(body) if len(body) < LARGE else await asyncio.to_thread(_read, body)

    async def _repeated_bytes(
        self,
        verb: str,
        what: str,
        path: str,
        params: Mapping[str, str],
        *,
        method: str = "GET",
        body: object = None,
        accept: str = "application/json",
        seconds: float = SECONDS,
    ) -> bytes:
        """The same once more where that may help, and never later than ten seconds after the first."""
        until = self.clock.monotonic() + TRIES_SECONDS
        for pause in (*PAUSES[: TRIES - 1], None):
            try:
                return await self._ask(verb, what, method, path, params, body=body, accept=accept, seconds=seconds)
            except ApiError as problem:
                wait = None if pause is None else max(pause, problem.retry_after or 0)
                once_more = problem.may_pass or (problem.code == 401 and self.access.plugin is not None)
                if wait is None or not once_more or self.clock.monotonic() + wait > until:
                    raise
            await self.clock.sleep(wait)
        raise AssertionError("the last try returns or raises")

    async def _ask(
        self,
        verb: str,
        what: str,
        method: str,
        path: str,
        params: Mapping[str, str],
        *,
        body: object = None,
        content: str = "application/json",
        accept: str = "application/json",
        seconds: float = SECONDS,
    ) -> bytes:
        """The body of a good answer, or an `ApiError`."""
        await self.pacing.turn()
        headers = await self._headers(accept, verb, path)
        data = None
        if body is not None:
            data, headers["Content-Type"] = orjson.dumps(body), content
        began, code = time.monotonic(), None
        try:
            async with (
                asyncio.timeout(seconds),
                self._opened().request(
                    method, self.access.server + path, params=params, data=data, headers=headers, allow_redirects=False
                ) as response,
            ):
                read = await response.read()
                code = response.status
                self.server_date = response.headers.get("Date")
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            # Refused at the door is no doubt: nothing was sent.
            doubt = not isinstance(problem, aiohttp.ClientConnectorError)
            raise _no_answer(problem, verb, path, doubt=doubt) from problem
        finally:
            self.metrics.answered(verb, what, code, time.monotonic() - began)
        if not 200 <= code < 300:
            raise self._refusal(response, read, verb, path)
        return read

    def _refusal(self, response: aiohttp.ClientResponse, body: bytes, verb: str, what: str) -> ApiError:
        status = status_in(body, response.status)
        after = _seconds(response.headers.get("Retry-After"))
        if after is None and (told := (status.get("details") or {}).get("retryAfterSeconds")):
            after = float(told)
        if response.status == 429:
            self.pacing.hold_creates(min(MOST_HOLD_SECONDS, after or HOLD_SECONDS))
        if response.status == 401:
            self.access.refused()
        # A server that failed may have done it before it did.
        doubt = response.status >= 500
        return ApiError(response.status, status, verb=verb, what=what, retry_after=after, doubt=doubt)

    async def _headers(self, accept: str, verb: str, what: str) -> dict[str, str]:
        try:
            return {"Accept": accept, **await self.access.headers()}
        except OSError as problem:  # a token that cannot be read, a plugin that gives none: nothing was sent
            raise _no_answer(problem, verb, what) from problem

    def _opened(self) -> aiohttp.ClientSession:
        loop = asyncio.get_running_loop()
        if self._session is None or self._session.closed or self._loop is not loop:
            self._loop = loop
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(ssl=self.access.context or True, limit=0, keepalive_timeout=60),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
                trust_env=True,
                headers={"User-Agent": "paddock"},
            )
        return self._session


def _no_answer(problem: BaseException, verb: str, what: str, *, doubt: bool = False) -> ApiError:
    told = (
        str(problem)
        if isinstance(problem, CredentialMissing)
        else f"The API server did not answer ({type(problem).__name__})."
    )
    said = {"message": told}
    return ApiError(None, cast(Any, said), verb=verb, what=what, doubt=doubt)


def _read(body: bytes) -> Object:
    return cast(Object, orjson.loads(body))


def _last(body: bytes, most: int) -> bytes:
    """Whole lines, if there is one: a value that nobody may read is not known by a half of it."""
    if len(body) <= most:
        return body
    kept = body[-most - 1 :]
    return kept.partition(b"\n")[2] or kept[1:]


def _selectors(labels: Mapping[str, str] | None, fields: Mapping[str, str] | None) -> dict[str, str]:
    found = {"labelSelector": labels, "fieldSelector": fields}
    return {name: ",".join(f"{key}={value}" for key, value in told.items()) for name, told in found.items() if told}


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() else None


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    rest = b""
    async for some in content.iter_any():
        *whole, rest = (rest + some).split(b"\n")
        for line in whole:
            if line:
                yield line
        if len(rest) > MOST_LINE:
            raise ValueError("a line of the watch has no end")
    if rest:
        raise aiohttp.ClientPayloadError("the watch ended in the middle of a line")
