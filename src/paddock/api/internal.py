"""The workers' API: decode, call the core's line, encode. Bare Starlette and msgspec, about four times FastAPI's rate.

Lists in, 200 with a verdict per item out. An unknown session is a 404 `session_unknown`: the worker registers again.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import msgspec
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from paddock.api import bodies
from paddock.api.access import WORKERS, RouteWithRoles
from paddock.api.auth import authorize
from paddock.api.errors import ApiError, invalid_field
from paddock.api.plane import ControlPlane
from paddock.jobs import reading, wire
from paddock.jobs.core import DirectLink
from paddock.jobs.link import Link, SessionUnknown
from paddock.jobs.model import JobId

Call = Callable[[DirectLink, Any, Scope, Receive], Awaitable[msgspec.Struct | None]]

encoder = msgspec.json.Encoder()


class _Endpoint:
    """An ASGI app of its own, so that Starlette adds no request object around it."""

    def __init__(self, path: str, message: type[msgspec.Struct], call: Call) -> None:
        self.path = path
        self.decoder = msgspec.json.Decoder(message)
        self.call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # for whoever counts requests by route; Starlette does it only for its own endpoints
        caller = await authorize(HTTPConnection(scope), WORKERS, "POST", self.path)
        assert caller is not None, "no internal route is open"
        message = self._decode(await bodies.read(receive))
        answer = await self.call(_plane(scope).core.link(kinds=caller.kinds), message, scope, receive)
        content = b"{}" if answer is None else encoder.encode(answer)
        await Response(content, media_type="application/json")(scope, receive, send)

    def _decode(self, body: bytes) -> Any:
        try:
            return self.decoder.decode(body)
        except RecursionError:
            raise bodies.malformed("The body is nested too deep.") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as problem:
            return self._tolerantly(body, problem)

    def _tolerantly(self, body: bytes, problem: Exception) -> Any:
        """msgspec refuses a lone surrogate or a number out of range (1e999) wherever it stands. One item that carries
        it must not hold up the others: the fence calls that item `invalid`."""
        try:
            return msgspec.convert(json.loads(body, parse_int=_integer), self.decoder.type)
        except msgspec.ValidationError as misfit:
            raise _misfit(misfit) from None
        except (ValueError, RecursionError):
            if isinstance(problem, msgspec.ValidationError):
                raise _misfit(problem) from None
            raise bodies.malformed(f"The body is not valid JSON: {problem}.") from None


def _integer(digits: str) -> int | float:
    """Python parses no more than 4,300 digits; so many are as far out of range as infinity."""
    return int(digits) if len(digits) < 1_000 else float(digits)


def _misfit(problem: msgspec.ValidationError) -> ApiError:
    return ApiError(422, "invalid", f"The message does not fit: {problem}.")


def routes() -> list[Route]:
    async def register(link: Link, message: wire.Register, _scope: Scope, _receive: Receive) -> wire.Registered:
        _check_names(worker_id=[message.worker_id], version=[message.version], kinds=message.kinds)
        return await link.register(message)

    async def claim(link: Link, message: wire.Claim, _scope: Scope, receive: Receive) -> wire.Claimed:
        _check_names(kinds=[*message.kinds, *message.limits])
        if message.wait_seconds <= 0:
            return await link.claim(message)
        return await _while_connected(link.claim(message), receive) or wire.Claimed(jobs=[])

    async def beat(link: Link, message: wire.Beat, scope: Scope, _receive: Receive) -> wire.Verdicts:
        return await link.beat(_session(scope), message)

    async def save(link: Link, message: wire.Save, _scope: Scope, _receive: Receive) -> wire.Verdicts:
        return await link.save(message)

    async def finish(link: Link, message: wire.Finish, _scope: Scope, _receive: Receive) -> wire.Verdicts:
        return await link.finish(message)

    async def release(link: Link, message: wire.Release, _scope: Scope, _receive: Receive) -> wire.Verdicts:
        return await link.release(message)

    async def logs(link: Link, message: wire.Logs, _scope: Scope, _receive: Receive) -> None:
        await link.logs(message)

    async def ended(link: DirectLink, message: wire.Jobs, scope: Scope, _receive: Receive) -> wire.Jobs:
        if len(message.ids) > 1000:
            raise invalid_field("ids", "At most 1,000.")
        jobs = await reading.jobs(_plane(scope).core.db, [JobId(id) for id in message.ids])
        return wire.Jobs(ids=[job.id for job in jobs if job.ended and link.may_know(job.kind)])

    table: list[tuple[str, type[msgspec.Struct], Call]] = [
        ("/internal/jobs/claim", wire.Claim, claim),
        ("/internal/jobs/finish", wire.Finish, finish),
        ("/internal/sessions/{session}/beat", wire.Beat, beat),
        ("/internal/jobs/save", wire.Save, save),
        ("/internal/jobs/logs", wire.Logs, logs),
        ("/internal/jobs/release", wire.Release, release),
        ("/internal/jobs/ended", wire.Jobs, ended),
        ("/internal/sessions", wire.Register, register),
    ]
    return [
        RouteWithRoles(path, _Endpoint(path, message, call), WORKERS, method="POST") for path, message, call in table
    ]


def _plane(scope: Scope) -> ControlPlane:
    plane: ControlPlane = scope["app"].state.plane
    return plane


def _session(scope: Scope) -> UUID:
    try:
        return UUID(scope["path_params"]["session"])
    except ValueError:
        raise SessionUnknown(scope["path_params"]["session"]) from None


def _check_names(**fields: list[str]) -> None:
    for field, names in fields.items():
        if len(names) > 1000 or any("\0" in name or not 0 < len(name) <= 253 for name in names):
            raise invalid_field(field, "Names have 1 to 253 characters, none of them NUL; at most 1,000 of them.")


T = TypeVar("T")


async def _while_connected(waiting: Awaitable[T], receive: Receive) -> T | None:
    """None when the client hung up first: its place among the waiters must be free at once. A claim that commits at
    that moment is harmless: the worker asks again with the same claim_id and gets the same attempts."""
    answer = asyncio.ensure_future(waiting)
    hung_up = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((answer, hung_up), return_when=asyncio.FIRST_COMPLETED)
    finally:
        hung_up.cancel()
        if not answer.done():
            answer.cancel()
            await asyncio.gather(answer, return_exceptions=True)
    return None if answer.cancelled() else answer.result()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
