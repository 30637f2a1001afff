"""A control plane as `paddock serve` starts it, but for its loops and workers: tests drive those tick by tick."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock import doctor
from paddock.api.app import create_app
from paddock.background import declared
from paddock.config import Config
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.web import pages
from tests.api.conftest import Clients
from tests.kinds import TEST_KINDS


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(object_store=str(tmp_path / "store"), data=tmp_path)


@pytest.fixture
async def core(dsn: str, settings: CoreSettings, config: Config) -> AsyncIterator[Core]:
    kinds = Kinds([*TEST_KINDS, *all_kinds(config)])
    async with open_core(dsn, kinds, settings, metrics=Metrics(CollectorRegistry())) as opened:
        await declared.at_start(opened, config)
        yield opened


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config, routers=[doctor.router()], routes=pages.routes())


@pytest.fixture
async def clients(app: FastAPI) -> AsyncIterator[Clients]:
    made = Clients(app)
    async with made.stack:
        await made.token("ada", "analyst")
        await made.token("grace", "ops")
        yield made


@pytest.fixture
async def ada(clients: Clients) -> httpx2.AsyncClient:
    return await clients("ada")


@pytest.fixture
async def grace(clients: Clients) -> httpx2.AsyncClient:
    return await clients("grace")
