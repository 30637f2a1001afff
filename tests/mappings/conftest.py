"""The app with the routes of exports; its callers are those of the API's own tests."""

from collections.abc import AsyncIterator

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.config import Config
from paddock.exports.kinds import DESCRIBE, EXPORT
from paddock.exports.removing import REMOVE
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from tests.api.conftest import ada, bob, clients, grace
from tests.kinds import TEST_KINDS

__all__ = ["ada", "app", "bob", "clients", "config", "core", "grace"]

ENGINES = {
    "local": {"type": "duckdb"},
    "warehouse": {"type": "trino", "url": "https://trino.example"},
}


@pytest.fixture
async def core(dsn: str, settings: CoreSettings) -> AsyncIterator[Core]:
    kinds = Kinds([*TEST_KINDS, BULK, EXPORT, DESCRIBE, REMOVE])
    async with open_core(dsn, kinds, settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def config() -> Config:
    return Config(engines=ENGINES)


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config)
