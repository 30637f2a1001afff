"""What users ask of an instance, passed on. An instance is hostile: somebody's Cypher runs in it.

- Only fixed paths are asked for, with a body that was checked and encoded here.
- Of its answer only the status, one of three content types and the bytes go on, with `nosniff`; its HTML never runs on our
  origin. An answer of another type, of another status, without an end or with too many bytes is an error of ours.
- The answer is streamed: memory does not grow with it. A client that goes away closes the connection, and the instance
  cancels the query.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar
from uuid import UUID, uuid4

import aiohttp
import orjson
import structlog
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddock import metrics
from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.instances import activity, endpoints, moving, talking
from paddock.instances.bodies import QueryBody
from paddock.instances.model import SQL
from paddock.instances.talking import Answer, BadAnswer, Endpoint, Unreachable
from paddock.stopping import end

JSON, CSV, ARROW = "application/json", "text/csv", "application/vnd.apache.arrow.stream"
# How many bytes of each may come: what the instance cuts at, and room for the frame around it.
MOST_BYTES = {JSON: 80 << 20, CSV: 80 << 20, ARROW: (1 << 30) + (80 << 20)}
STATUSES = frozenset({200, 202, 400, 404, 405, 408, 409, 413, 422, 429, 503})
CHUNK = 256 << 10
# Refusals of this status say why in few words, and are read before they go on.
MOST_CONFLICT = 64 << 10
# Between two pieces of an answer that has begun.
STALLED = 60.0
# For all pieces together, while nobody but the instance is waited for: one that drips holds a connection no longer.
MOST_WAITED = 600.0
RESTARTS, REASON = "Paddock-Engine-Restarts", "Paddock-Engine-Restart-Reason"
# How many rows of how many follow, where the answer itself has no place for that.
ROWS, ROWS_TEXT = "Paddock-Rows", re.compile(r"[0-9]{1,19} of [0-9]{1,19}")
QUERIES = frozenset({"/query", "/algo/shortest_path"})
# Beyond the query's own time: to be queued, to be interrupted, and to be told.
SLACK_SECONDS = 30.0
T = TypeVar("T")
REASONS = frozenset({"timeout", "cancelled", "crashed", "out_of_memory", "switched"})
log = structlog.get_logger()


def accepted_type(accept: str) -> str:
    """What the caller would like of the three; JSON for whoever says nothing."""
    wanted = [part.partition(";")[0].strip().lower() for part in accept.split(",")]
    for one in wanted:
        if one in MOST_BYTES:
            return one
    if not accept.strip() or any(one in ("*/*", "application/*") for one in wanted):
        return JSON
    if "text/*" in wanted:
        return CSV
    raise ApiError(406, "not_acceptable", f"There are {JSON}, {CSV} and {ARROW}.")


async def forward(
    plane: ControlPlane,
    request: Request,
    id: UUID,
    method: str,
    path: str,
    body: object = None,
    *,
    accept: str = JSON,
    seconds: float = 30.0,
) -> Response:
    """Its answer, passed on as it comes. `seconds` is how long it may take to begin."""
    return await _exchanged(plane, id, method, path, body, accept, lambda exchange: exchange.pass_on(request, seconds))


async def ask(
    plane: ControlPlane,
    request: Request,
    id: UUID,
    method: str,
    path: str,
    body: object = None,
    *,
    seconds: float = 10.0,
) -> Answer:
    """Its answer, read: for a page, which shows no more than `talking.MOST_BYTES` of it. An error of the instance is an answer."""
    return await _exchanged(plane, id, method, path, body, JSON, lambda exchange: exchange.read(request, seconds))


async def forward_query(
    plane: ControlPlane, request: Request, caller: Caller, id: UUID, body: QueryBody, accept: str
) -> Response:
    await activity.note(plane.core.db, id)
    return await forward(
        plane, request, id, "POST", "/query", query_of(caller, body), accept=accept, seconds=_longest(body)
    )


async def ask_query(plane: ControlPlane, request: Request, caller: Caller, id: UUID, body: QueryBody) -> Answer:
    await activity.note(plane.core.db, id)
    return await ask(plane, request, id, "POST", "/query", query_of(caller, body), seconds=_longest(body))


def query_of(caller: Caller, body: QueryBody) -> dict[str, Any]:
    """As the instance reads it; by its id it can be cancelled."""
    return {**body.model_dump(exclude_none=True), "query_id": str(uuid4()), "owner": caller.owner}


def _longest(body: QueryBody) -> float:
    return body.timeout_ms / 1000 + SLACK_SECONDS


async def _exchanged(
    plane: ControlPlane,
    id: UUID,
    method: str,
    path: str,
    body: object,
    accept: str,
    run: Callable[["_Exchange"], Awaitable[T]],
) -> T:
    for last in (False, True):
        endpoint = await endpoints.endpoint_of(plane, id)
        try:
            return await run(_Exchange(plane, id, endpoint, method, path, body, accept))
        except Unreachable:
            error = await endpoints.lost(plane, id, endpoint.generation)
            # The address that was remembered may be an older process's: once more with a fresh one.
            if last or error.code != "instance_unreachable" or method != "GET":
                raise error from None
    raise AssertionError("unreachable")


class _TooLarge(ApiError):
    """The instance sends more than whoever asked takes."""


class _Exchange:
    def __init__(
        self, plane: ControlPlane, id: UUID, endpoint: Endpoint, method: str, path: str, body: object, accept: str
    ) -> None:
        self.plane, self.id, self.endpoint = plane, id, endpoint
        self.method, self.path, self.accept = method, path, accept
        self.content = None if body is None else orjson.dumps(body)
        self.is_query = path in QUERIES
        self.began = time.perf_counter()

    async def pass_on(self, request: Request, seconds: float) -> Response:
        response, kind = await self._answered(request, seconds)
        if response.status == 409:
            answer = await self._whole(response, MOST_CONFLICT)
            return Response(orjson.dumps(answer.body), answer.status, _headers(response), media_type=kind)
        return StreamingResponse(
            self._passed_on(response, MOST_BYTES[kind]), response.status, _headers(response), media_type=kind
        )

    async def read(self, request: Request, seconds: float) -> Answer:
        response, _ = await self._answered(request, seconds)
        try:
            return await self._whole(response, talking.MOST_BYTES)
        except _TooLarge as large:
            large.message, large.hint = "The answer is too large for a page.", "Ask for less, or with LIMIT."
            raise

    async def _answered(self, request: Request, seconds: float) -> tuple[aiohttp.ClientResponse, str]:
        """With its content type."""
        response = await self._begun(request, seconds)
        try:
            talking.check_generation(self.endpoint, response.headers)
            await self._note_restarts(response.headers)
            return response, _content_type(response)
        except BaseException:
            response.close()
            raise

    async def _whole(self, response: aiohttp.ClientResponse, most: int) -> Answer:
        """Raises what follows where the instance says that it will never answer queries again."""
        parts = [piece async for piece in self._passed_on(response, most)]
        try:
            answer = talking.answer_of(response.status, b"".join(parts), response.headers)
        except BadAnswer:
            raise answered_badly() from None
        details = answer.error.get("details")
        failed = isinstance(details, dict) and details.get("state") == "failed"
        if failed and answer.error.get("code") == "instance_not_running":
            raise await endpoints.lost(self.plane, self.id, self.endpoint.generation)
        return answer

    async def _begun(self, request: Request, seconds: float) -> aiohttp.ClientResponse:
        """The beginning of its answer, unless the caller goes away before: then the connection is closed."""
        asking = asyncio.create_task(self._ask())
        leaving = asyncio.create_task(left(request))
        try:
            done, _ = await asyncio.wait((asking, leaving), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if asking in done:
                return asking.result()
            self._count("gone" if leaving in done else "no_answer")
            raise ApiError(
                504, "instance_timeout", "The instance did not answer in time.", hint="Ask for less, or try again."
            )
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            self._count("unreachable")
            raise Unreachable(type(problem).__name__) from problem
        finally:
            await end(leaving)
            if not asking.done():
                await end(asking)

    async def _ask(self) -> aiohttp.ClientResponse:
        headers = {**self.endpoint.headers, "Accept": self.accept, "Accept-Encoding": "identity"}
        if self.content is not None:
            headers["Content-Type"] = JSON
        url = self.endpoint.address.url + self.path
        return await talking.session().request(
            self.method, url, data=self.content, headers=headers, allow_redirects=False
        )

    async def _passed_on(self, response: aiohttp.ClientResponse, most: int) -> AsyncIterator[bytes]:
        outcome, sent, waited = "cut", 0, 0.0
        try:
            while True:
                asked_at = time.monotonic()
                async with asyncio.timeout(min(STALLED, MOST_WAITED - waited)):
                    piece = await response.content.read(CHUNK)
                waited += time.monotonic() - asked_at
                if not piece:
                    outcome = _outcome(response.status)
                    break
                sent += len(piece)
                if sent > most:
                    raise _TooLarge(502, "instance_answer_too_large", "The instance sent more than it may.")
                yield piece
            if self.is_query:
                await activity.note(self.plane.core.db, self.id)  # it may have taken long
        except (aiohttp.ClientError, OSError, TimeoutError) as problem:
            # The answer is under way: the connection is closed, and the caller sees that it is not whole.
            raise ApiError(502, "instance_answer_cut", "The answer of the instance broke off.") from problem
        finally:
            response.close()
            self._count(outcome)
            if self.is_query:
                metrics.default().instance_query_seconds.observe(time.perf_counter() - self.began)

    def _count(self, outcome: str) -> None:
        if self.is_query:
            metrics.default().instance_queries(outcome).inc()

    async def _note_restarts(self, headers: Mapping[str, str]) -> None:
        """Each answer tells how often its engine was started anew; whoever first sees that rise records it."""
        told = headers.get(RESTARTS, "0")
        if not (told.isascii() and told.isdecimal() and len(told) < 7) or int(told) <= _known_restarts(
            self.endpoint.generation
        ):
            return
        said = headers.get(REASON, "")
        reason = said if said in REASONS else "other"
        async with self.plane.core.db.transaction() as tx:
            row = await tx.fetchrow(SQL["note_engine_restarts"], self.id, self.endpoint.generation, int(told))
            if row is not None:
                tx.count(metrics.default().instance_engine_restarts(reason), int(told) - row["seen"])
                event = moving.event("engine_restarted", self.id, reason=reason, restarts=int(told))
                await self.plane.core.make(tx, [event], owner=row["owner"])
        _restarts[self.endpoint.generation] = int(told)


# What this process has seen of each generation, so that the database is asked only when it rises.
_restarts: dict[UUID, int] = {}


def _known_restarts(generation: UUID) -> int:
    if len(_restarts) > endpoints.MOST_REMEMBERED:
        _restarts.clear()
    return _restarts.get(generation, 0)


def _content_type(response: aiohttp.ClientResponse) -> str:
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if response.status not in STATUSES or kind not in MOST_BYTES or (response.status != 200 and kind != JSON):
        log.warning("instance_answered_badly", status=response.status, content_type=kind[:100])
        raise answered_badly()
    return kind


def answered_badly() -> ApiError:
    return ApiError(
        502,
        "instance_answered_badly",
        "The instance answered with something that is no answer.",
        hint="Reopen it; if that does not help, its log may tell more.",
    )


def _headers(response: aiohttp.ClientResponse) -> dict[str, str]:
    """Those that go on. `nosniff` and `no-store` are the edge's, for every answer."""
    headers = {}
    retry = response.headers.get("Retry-After", "")
    if retry.isascii() and retry.isdecimal():
        headers["Retry-After"] = retry[:6]
    rows = response.headers.get(ROWS, "")
    if ROWS_TEXT.fullmatch(rows):
        headers[ROWS] = rows
    return headers


def _outcome(status: int) -> str:
    outcomes = {200: "ok", 202: "ok", 408: "timeout", 422: "failed", 429: "refused", 503: "restarted"}
    return outcomes.get(status, "refused")


async def left(request: Request) -> None:
    """Returns when the caller has gone away. The body was read before."""
    with contextlib.suppress(RuntimeError):
        while (await request.receive())["type"] != "http.disconnect":
            pass
        return
    await asyncio.Event().wait()
