"""A Paddock with exports, two engines and a destination, and browsers without a screen that are signed in to it."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.exports.kinds import DESCRIBE, EXPORT
from paddock.exports.removing import REMOVE
from paddock.exports.scheduled import SCHEDULED
from paddock.exports.scheduled_snapshot import SCHEDULED as SCHEDULED_SNAPSHOT
from paddock.exports.settings import ExportSettings
from paddock.jobs.core import Core, open_core
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from paddock.web import pages
from tests.kinds import TEST_KINDS
from tests.web.signed_in import BASE, ODD, Browser, Open

ENGINES: dict[str, Any] = {
    "local": {"type": "duckdb", "description": ODD},
    "warehouse": {"type": "trino", "url": "https://trino.example", "catalog": "hive", "unload_catalog": "hive"},
}
OWNERS = {"analyst": "ann", "ops": "olga"}


@pytest.fixture
async def exports_core(dsn: str) -> AsyncIterator[Core]:
    kinds = Kinds([*TEST_KINDS, EXPORT, DESCRIBE, REMOVE, SCHEDULED, SCHEDULED_SNAPSHOT])
    async with open_core(dsn, kinds, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def exports_config(tmp_path: Path) -> Config:
    config = Config(engines=ENGINES, object_store=str(tmp_path / "store"))
    return config.with_settings(ExportSettings(destinations={"lake": {"url": str(tmp_path / "lake")}}))


@pytest.fixture
def exports_app(exports_core: Core, exports_config: Config) -> FastAPI:
    return create_app(exports_core, exports_config, routes=pages.routes())


@pytest.fixture
async def open_browser(exports_app: FastAPI, exports_core: Core) -> AsyncIterator[Open]:
    async with contextlib.AsyncExitStack() as stack:

        async def make(role: str = "analyst", owner: str | None = None, **grants: Any) -> Browser:
            owner = owner or OWNERS[role]
            granted = {"engines": ["*"], "engine_roles": ["finance", "people"], "destinations": ["lake"], **grants}
            new = NewToken(name=f"{owner} {uuid4()}", role=role, owner=owner, grants=granted)  # type: ignore[arg-type]
            _, secret = await Tokens(exports_core.db).create(new, actor="test")
            client = httpx2.AsyncClient(transport=httpx2.ASGITransport(exports_app), base_url=BASE)
            await stack.enter_async_context(client)
            answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
            assert answer.status_code == 303
            return Browser(client)

        yield make


@pytest.fixture
async def ann(open_browser: Open) -> Browser:
    return await open_browser()
