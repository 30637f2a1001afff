"""The line to the control plane over HTTP."""

from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

import aiohttp
import msgspec

from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused, SessionUnknown

T = TypeVar("T")

CALL_SECONDS = 30.0
CONNECT_SECONDS = 5.0
# What a long poll may take beyond its wait.
POLL_SLACK_SECONDS = 10.0
# Refused for now; asking again may help.
LATER = (408, 425, 429)

_encode = msgspec.json.Encoder().encode


class _Problem(msgspec.Struct):
    code: str = ""
    message: str = ""
    hint: str | None = None


class _ErrorBody(msgspec.Struct):
    error: _Problem


_registered = msgspec.json.Decoder(wire.Registered)
_claimed = msgspec.json.Decoder(wire.Claimed)
_verdicts = msgspec.json.Decoder(wire.Verdicts)
_jobs = msgspec.json.Decoder(wire.Jobs)
_error = msgspec.json.Decoder(_ErrorBody)


class HttpLink:
    """Keeps its connections. `token` is asked for at each call, because a mounted secret changes while we run."""

    def __init__(self, server_url: str, token: str | Callable[[], str]) -> None:
        self._url = server_url.rstrip("/")
        self._token = token if callable(token) else lambda: token
        self._client: aiohttp.ClientSession | None = None

    async def register(self, message: wire.Register) -> wire.Registered:
        return await self._call("/internal/sessions", message, _registered)

    async def claim(self, message: wire.Claim) -> wire.Claimed:
        timeout = message.wait_seconds + POLL_SLACK_SECONDS
        return await self._call("/internal/jobs/claim", message, _claimed, timeout)

    async def beat(self, session: UUID, message: wire.Beat) -> wire.Verdicts:
        return await self._call(f"/internal/sessions/{session}/beat", message, _verdicts)

    async def save(self, message: wire.Save) -> wire.Verdicts:
        return await self._call("/internal/jobs/save", message, _verdicts)

    async def finish(self, message: wire.Finish) -> wire.Verdicts:
        return await self._call("/internal/jobs/finish", message, _verdicts)

    async def release(self, message: wire.Release) -> wire.Verdicts:
        return await self._call("/internal/jobs/release", message, _verdicts)

    async def logs(self, message: wire.Logs) -> None:
        await self._post("/internal/jobs/logs", message, CALL_SECONDS)

    async def ended(self, message: wire.Jobs) -> wire.Jobs:
        """Those of these jobs that have ended. What the control plane does not know is not among them."""
        return await self._call("/internal/jobs/ended", message, _jobs)

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def _call(
        self, path: str, message: wire.Struct, decoder: msgspec.json.Decoder[T], timeout: float = CALL_SECONDS
    ) -> T:
        body = await self._post(path, message, timeout)
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            # Something else than the control plane answered 200: a proxy's page, most likely.
            raise LinkDown(f"POST {path} was answered with something else than JSON for it: {error}") from error

    async def _post(self, path: str, message: wire.Struct, timeout: float) -> bytes:
        body = _encode(message)
        try:
            async with self._session().post(
                self._url + path,
                data=body,
                headers={"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"},
                timeout=aiohttp.ClientTimeout(total=timeout, connect=CONNECT_SECONDS),
                allow_redirects=False,
            ) as response:
                answer = await response.read()
                if response.status < 300:
                    return answer
                raise _refusal(path, response.status, answer)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise LinkDown(f"POST {path}: {type(error).__name__}: {error}") from error

    def _session(self) -> aiohttp.ClientSession:
        if self._client is None:
            # No limit on connections: a long poll holds one, and a beat must never queue behind it.
            self._client = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=60), cookie_jar=aiohttp.DummyCookieJar()
            )
        return self._client


def _refusal(path: str, status: int, body: bytes) -> Exception:
    try:
        problem = _error.decode(body).error
    except msgspec.MsgspecError:
        problem = _Problem()
    text = f"POST {path} was answered with {status}: {problem.message or problem.code or 'no reason given'}"
    if status >= 500 or status in LATER or status < 400:
        return LinkDown(text)
    if status == 404 and problem.code == "session_unknown":
        return SessionUnknown(text)
    return LinkRefused(f"{text} {problem.hint}" if problem.hint else text, status)
