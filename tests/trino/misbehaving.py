"""A Trino of our own, for what a real one will not do on demand. It speaks the protocol from a script of pages."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from paddock.engines.settings import TrinoSettings

COLUMNS = [
    {
        "name": "n",
        "type": "bigint",
        "typeSignature": {"rawType": "bigint", "arguments": []},
    }
]
QUERY = "20240101_000000_00001_tests"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Asked:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Misbehaving:
    """`pages` are the rows of the export's pages: lists, or spooled data. `trouble` maps a path, as in `/page/0`, to
    answers that come before the right one."""

    port: int = 0
    pages: list[Any] = field(default_factory=list)
    trouble: dict[str, list[Handler]] = field(default_factory=dict)
    segments: dict[str, bytes] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    error: dict[str, Any] | None = None
    storage: "Misbehaving | None" = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self, **changes: Any) -> TrinoSettings:
        given = {"url": self.url, "user": "lab", "requires_role": False, "patience_seconds": 30}
        return TrinoSettings.model_validate(given | changes)

    def count(self, method: str, path: str) -> int:
        return sum(1 for asked in self.asked if (asked.method, asked.path) == (method, path))

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        self.asked.append(Asked(request.method, request.path, dict(request.headers), body))
        key = request.path if request.method == "GET" else f"{request.method} {request.path}"
        if waiting := self.trouble.get(key):
            return await waiting.pop(0)(request)
        if request.method == "DELETE":
            return web.Response(status=204)
        if request.method == "HEAD":
            return web.Response(status=200)
        if request.method == "POST":
            # The gate's own query gives columns and nothing else.
            if b"LIMIT 0" in body:
                return page_of(columns=COLUMNS)
            return page_of(nextUri=f"{self.url}/page/0")
        if request.path.startswith("/segment/"):
            return web.Response(body=self.segments[request.path])
        if request.path.startswith("/ack/"):
            return web.Response(status=200)
        return self.page(int(request.path.rsplit("/", 1)[1]))

    def page(self, number: int) -> web.Response:
        last = number >= len(self.pages)
        more = {} if last else {"nextUri": f"{self.url}/page/{number + 1}", "data": self.pages[number]}
        if last and self.error is not None:
            more["error"] = self.error
        return page_of(columns=COLUMNS, **more)

    def spooled(self, *sizes: int, offsets: Sequence[int] | None = None) -> dict[str, Any]:
        """Segments of so many rows, which go on counting."""
        segments = []
        first = 0
        store = self.storage or self
        for number, rows in enumerate(sizes):
            data = json.dumps([[first + row] for row in range(rows)]).encode()
            path = f"/segment/{len(store.segments)}"
            store.segments[path] = data
            segments.append(
                {
                    "type": "spooled",
                    "uri": f"{store.url}{path}",
                    "ackUri": f"{self.url}/ack{path}",
                    "headers": {"x-segment-key": ["k"]},
                    "metadata": {
                        "rowOffset": offsets[number] if offsets else first,
                        "rowsCount": rows,
                        "segmentSize": len(data),
                    },
                }
            )
            first += rows
        return {"encoding": "json+zstd", "segments": segments}


def inline(first: int, rows: int) -> dict[str, Any]:
    data = json.dumps([[first + row] for row in range(rows)]).encode()
    metadata = {"rowOffset": first, "rowsCount": rows, "segmentSize": len(data)}
    return {"type": "inline", "data": b64encode(data).decode(), "metadata": metadata}


def page_of(**content: Any) -> web.Response:
    order = ("nextUri", "columns", "data")
    envelope: dict[str, Any] = {"id": QUERY, "infoUri": "http://none/"}
    envelope |= {name: content[name] for name in order if name in content}
    envelope |= {"stats": {"state": "RUNNING"}}
    envelope |= {name: value for name, value in content.items() if name not in order}
    text = json.dumps(envelope, separators=(",", ":"))
    return web.Response(text=text, content_type="application/json")


@asynccontextmanager
async def misbehaving() -> AsyncIterator[Misbehaving]:
    server = Misbehaving()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.port = site.port
    try:
        yield server
    finally:
        await runner.cleanup()


def status(code: int, headers: dict[str, str] | None = None, text: str = "") -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=code, headers=headers, text=text)

    return answer


async def reset(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    raise asyncio.CancelledError


async def silence(request: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError


def cut(body: bytes, *, honest: bool) -> Handler:
    """Half of the body. `honest`: the length that was promised tells; otherwise only the text does."""

    async def answer(request: web.Request) -> web.StreamResponse:
        half = body[: len(body) // 2]
        if not honest:
            return web.Response(body=half, content_type="application/json")
        response = web.StreamResponse(headers={"Content-Length": str(len(body)), "Content-Type": "application/json"})
        await response.prepare(request)
        await response.write(half)
        assert request.transport is not None
        request.transport.close()
        return response

    return answer


def then(action: Callable[[], object], answer: Handler) -> Handler:
    async def both(request: web.Request) -> web.StreamResponse:
        action()
        return await answer(request)

    return both
