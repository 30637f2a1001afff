"""A proxy between the browser and the server."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp import web


@dataclass
class Proxy:
    """Serves another server under a sub-path, as nginx, Traefik and the rest do; can cut what goes through it."""

    to: str
    prefix: str = "/tools/paddock"
    address: str = ""
    cut: bool = False
    buffering: bool = False
    streams: int = 0
    under_way: set[asyncio.Task[Any]] = field(default_factory=set)

    async def forward(self, request: web.Request) -> web.StreamResponse:
        if self.cut:
            assert request.transport is not None
            request.transport.abort()
            raise asyncio.CancelledError
        path = request.rel_url.raw_path.removeprefix(self.prefix)
        is_stream = path == "/api/stream"
        headers = {**request.headers, "x-forwarded-prefix": self.prefix}
        address = f"{self.to}{path}?{request.rel_url.raw_query_string}"
        async with (
            aiohttp.ClientSession(auto_decompress=False) as session,
            session.request(
                request.method, address, headers=headers, data=await request.read(), allow_redirects=False
            ) as answer,
        ):
            response = web.StreamResponse(status=answer.status, headers=_passed_on(answer))
            if is_stream and self.buffering:
                await answer.read()  # until it ends, which a stream does not
            await response.prepare(request)
            self.streams += is_stream
            self.under_way.add(task := asyncio.ensure_future(self._copy(answer, response)))
            try:
                await task
            except asyncio.CancelledError:
                if request.transport is not None:  # cut off by us, not left by the browser
                    request.transport.abort()
                raise
            finally:
                task.cancel()
                self.under_way.discard(task)
                self.streams -= is_stream
            return response

    async def _copy(self, answer: aiohttp.ClientResponse, response: web.StreamResponse) -> None:
        async for chunk in answer.content.iter_any():
            await response.write(chunk)

    def cut_off(self) -> None:
        self.cut = True
        for task in self.under_way:
            task.cancel()


def _passed_on(answer: aiohttp.ClientResponse) -> list[tuple[str, str]]:
    hop = {"transfer-encoding", "connection", "content-length"}
    return [(name, value) for name, value in answer.headers.items() if name.lower() not in hop]
