"""Speaking to an instance server: short questions with bounded JSON answers. What users ask is streamed by `proxy`.

An instance is hostile: no more of an answer is read than it may have, and nothing in it is believed beyond its shape.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID
from weakref import WeakKeyDictionary

import aiohttp
import asyncpg
import orjson

from paddock.runtimes.runtime import Address

MOST_BYTES = 4 << 20
SHORT = 10.0
GENERATION = "Paddock-Generation"
# One for each event loop, as long as that lives.
_sessions: WeakKeyDictionary[asyncio.AbstractEventLoop, aiohttp.ClientSession] = WeakKeyDictionary()


class Unreachable(Exception):
    """It does not answer, or what answers is another generation."""


class BadAnswer(Exception):
    """It answers, and what it says is not what an instance server says."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an instance answers, and the token of its generation."""

    address: Address
    generation: UUID
    token: str

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    def __repr__(self) -> str:
        return f"Endpoint({self.address.url}, {self.generation})"


def saved_address(row: asyncpg.Record) -> Address | None:
    """As the start found it. Another generation has another address, and says that it is one."""
    return None if row["address"] is None else Address(**orjson.loads(row["address"]))


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: dict[str, Any]
    headers: Mapping[str, str]

    @property
    def data(self) -> dict[str, Any]:
        found = self.body.get("data")
        return found if isinstance(found, dict) else {}

    @property
    def error(self) -> dict[str, Any]:
        found = self.body.get("error")
        return found if isinstance(found, dict) else {}


def session() -> aiohttp.ClientSession:
    loop = asyncio.get_running_loop()
    found = _sessions.get(loop)
    if found is None or found.closed:
        found = _sessions[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=15),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
            trust_env=False,
        )
    return found


async def close_session() -> None:
    found = _sessions.pop(asyncio.get_running_loop(), None)
    if found is not None:
        await found.close()


async def ask(endpoint: Endpoint, method: str, path: str, body: object = None, *, seconds: float = SHORT) -> Answer:
    """Raises `Unreachable` and `BadAnswer`; an error of the instance is an answer."""
    content = None if body is None else orjson.dumps(body)
    headers = {**endpoint.headers, **({} if content is None else {"Content-Type": "application/json"})}
    try:
        async with asyncio.timeout(seconds):
            async with session().request(
                method, endpoint.address.url + path, data=content, headers=headers, allow_redirects=False
            ) as response:
                check_generation(endpoint, response.headers)
                read = await response.content.read(MOST_BYTES + 1)
                while len(read) <= MOST_BYTES and not response.content.at_eof():
                    read += await response.content.read(MOST_BYTES + 1 - len(read))
    except (aiohttp.ClientError, OSError, TimeoutError) as problem:
        raise Unreachable(type(problem).__name__) from problem
    return answer_of(response.status, read, response.headers)


def answer_of(status: int, read: bytes, headers: Mapping[str, str]) -> Answer:
    return Answer(status, _decoded(read), headers)


def check_generation(endpoint: Endpoint, headers: Mapping[str, str]) -> None:
    """Another start may have got the port."""
    if headers.get(GENERATION) != str(endpoint.generation):
        raise Unreachable("another generation answers")


def _decoded(read: bytes) -> dict[str, Any]:
    if len(read) > MOST_BYTES:
        raise BadAnswer("the answer is too long")
    try:
        found = orjson.loads(read)
    except orjson.JSONDecodeError:
        raise BadAnswer("the answer is not JSON") from None
    if not isinstance(found, dict):
        raise BadAnswer("the answer is not an object")
    return found
