"""The app in this process, and a client for each role. `ada` and `bob` are analysts; neither may learn of the other."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock import doctor
from paddock.api.access import Role
from paddock.api.app import create_app
from paddock.api.connections import Limits
from paddock.api.server import Server, listen
from paddock.api.tokens import NewToken, Tokens, everything
from paddock.config import Config
from paddock.exports.kinds import DESCRIBE, EXPORT
from paddock.exports.removing import REMOVE
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.jobs.probe import PROBE
from paddock.metrics import Metrics
from paddock.web import pages
from tests.kinds import TEST_KINDS

BASE = "http://paddock.test"


@dataclass
class Clients:
    """An HTTP client for each caller, by name."""

    app: FastAPI
    secrets: dict[str, str] = field(default_factory=dict)
    opened: dict[str, httpx2.AsyncClient] = field(default_factory=dict)
    stack: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def tokens(self) -> Tokens:
        tokens: Tokens = self.app.state.plane.tokens
        return tokens

    async def token(self, name: str, role: Role, kinds: Sequence[str] | None = None, **grants: Sequence[str]) -> str:
        """With all grants, unless some are named."""
        new = NewToken(name=name, role=role, owner=name, kinds=kinds, grants=grants)
        if kinds is None and not grants:
            new = everything(name, role)
        _, secret = await self.tokens.create(new, actor="test")
        self.secrets[name] = secret
        return secret

    async def __call__(self, name: str) -> httpx2.AsyncClient:
        if name not in self.opened:
            headers = {"Authorization": f"Bearer {self.secrets[name]}"} if name in self.secrets else {}
            client = httpx2.AsyncClient(transport=httpx2.ASGITransport(self.app), base_url=BASE, headers=headers)
            self.opened[name] = await self.stack.enter_async_context(client)
        return self.opened[name]


@pytest.fixture
async def core(dsn: str, settings: CoreSettings) -> AsyncIterator[Core]:
    kinds = Kinds([*TEST_KINDS, BULK, PROBE, EXPORT, DESCRIBE, REMOVE])
    async with open_core(dsn, kinds, settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def config() -> Config:
    return Config()


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config, routers=[doctor.router()], routes=pages.routes())


@pytest.fixture
async def clients(app: FastAPI) -> AsyncIterator[Clients]:
    made = Clients(app)
    async with made.stack:
        await made.token("ada", "analyst")
        await made.token("bob", "analyst")
        await made.token("grace", "ops")
        await made.token("root", "admin")
        await made.token("worker", "worker")
        yield made


@pytest.fixture
async def ada(clients: Clients) -> httpx2.AsyncClient:
    return await clients("ada")


@pytest.fixture
async def bob(clients: Clients) -> httpx2.AsyncClient:
    return await clients("bob")


@pytest.fixture
async def grace(clients: Clients) -> httpx2.AsyncClient:
    return await clients("grace")


@pytest.fixture
async def root(clients: Clients) -> httpx2.AsyncClient:
    return await clients("root")


@pytest.fixture
async def worker(clients: Clients) -> httpx2.AsyncClient:
    return await clients("worker")


@pytest.fixture
async def stranger(clients: Clients) -> httpx2.AsyncClient:
    """Without a token."""
    return await clients("stranger")


@asynccontextmanager
async def serving(app: FastAPI, limits: Limits | None = None) -> AsyncIterator[tuple[Server, str]]:
    """The app behind a real socket, for what a transport in memory cannot show: streams, hang-ups, shutdown."""
    bound = listen("127.0.0.1", 0)
    bound.listen()  # who comes before the server is ready waits
    server = Server(app, app.state.plane.config, limits)
    server.turn_to(app)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield server, f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


@pytest.fixture
async def served(app: FastAPI) -> AsyncIterator[str]:
    async with serving(app) as (_, address):
        yield address
