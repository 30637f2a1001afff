"""The dashboard with a fake runtime, and browsers without a screen that are signed in to it."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.web import pages
from tests.api.conftest import Clients
from tests.instances.fake_runtime import FakeRuntime
from tests.web.signed_in import BASE, Browser, Open


@pytest.fixture
def app(core: Core, config: Config, runtime: FakeRuntime) -> FastAPI:
    return create_app(core, config, routes=pages.routes())


@pytest.fixture
async def browse(app: FastAPI, clients: Clients) -> AsyncIterator[Open]:
    async with AsyncExitStack() as stack:

        async def make(name: str) -> Browser:
            """Of ada, bob or eve, who are analysts, or of grace, who operates."""
            if name not in clients.secrets:
                await clients.token(name, "analyst")
            client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE)
            await stack.enter_async_context(client)
            sent = {"token": clients.secrets[name]}
            answer = await client.post("/sign-in", data=sent, headers={"origin": BASE})
            assert answer.status_code == 303
            return Browser(client)

        yield make
