"""The app in this process with a store in a folder, and the test as the worker that exports."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from paddock.config import Config
from paddock.exports.kinds import DESCRIBE, EXPORT
from paddock.exports.removing import REMOVE
from paddock.exports.settings import ExportSettings
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from tests.mappings.conftest import ENGINES, ada, app, bob, clients, grace

__all__ = ["ada", "app", "bob", "clients", "config", "core", "grace"]


@pytest.fixture
async def core(dsn: str, settings: CoreSettings) -> AsyncIterator[Core]:
    kinds = Kinds([EXPORT, DESCRIBE, REMOVE, BULK])
    async with open_core(dsn, kinds, settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def config(tmp_path: Path) -> Config:
    lake = {"url": str(tmp_path / "lake")}
    config = Config(data=tmp_path / "data", object_store=str(tmp_path / "store"), engines=ENGINES)
    return config.with_settings(ExportSettings(destinations={"lake": lake}))
