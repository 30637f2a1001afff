"""The app with a fake runtime; its callers are those of the API's own tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.config import Config
from paddock.instances import running_on, talking
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from tests.api.conftest import ada, bob, clients, grace, root, stranger
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import working

__all__ = ["ada", "app", "bob", "clients", "config", "core", "grace", "root", "stranger"]


@pytest.fixture
def config(tmp_path: Path) -> Config:
    return Config(
        data=tmp_path,
        object_store=str(tmp_path / "objects"),
        engines={"local": {"type": "duckdb"}},
    )


@pytest.fixture
async def core(dsn: str, settings: CoreSettings, config: Config) -> AsyncIterator[Core]:
    async with open_core(dsn, all_kinds(config), settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
async def runtime(config: Config, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[FakeRuntime]:
    made = FakeRuntime()
    monkeypatch.setitem(running_on.OPENED, ("local", config.data), made)
    yield made
    await made.close()
    await talking.close_session()


@pytest.fixture
def app(core: Core, config: Config, runtime: FakeRuntime) -> FastAPI:
    return create_app(core, config)


@pytest.fixture
async def at_work(core: Core, config: Config, runtime: FakeRuntime) -> AsyncIterator[None]:
    async with working(core, config):
        yield
