"""A real HTTP receiver on the loopback, and a resolver that says what a test wants it to say."""

import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Receiver:
    port: int = 0
    requests: list[tuple[Mapping[str, str], bytes]] = field(default_factory=list)

    def url(self, host: str = "127.0.0.1", path: str = "/hook") -> str:
        return f"http://{host}:{self.port}{path}"


@asynccontextmanager
async def receiving(handler: Handler, host: str = "127.0.0.1") -> AsyncIterator[Receiver]:
    receiver = Receiver()

    async def answer(request: web.Request) -> web.StreamResponse:
        receiver.requests.append((request.headers, await request.read()))
        return await handler(request)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    receiver.port = site.port
    try:
        yield receiver
    finally:
        await runner.cleanup()


def answering(status: int, headers: Mapping[str, str] | None = None) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, headers=headers)

    return answer


class FakeResolver(AbstractResolver):
    """Answers each look-up with the next of `answers`, the last one for ever."""

    def __init__(self, *answers: str | Sequence[str]) -> None:
        self._answers = [[answer] if isinstance(answer, str) else list(answer) for answer in answers]
        self.asked = 0

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        addresses = self._answers[min(self.asked, len(self._answers) - 1)]
        self.asked += 1
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=0,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        pass
