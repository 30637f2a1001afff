"""The app with two catalogs, and tests that play the worker."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.config import Config
from paddock.jobs import wire
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.model import Job, JsonObject
from paddock.known_kinds import all_kinds
from paddock.maintenance.passes import look_job
from paddock.maintenance.routes import router
from paddock.maintenance.settings import MaintenanceSettings
from paddock.metrics import Metrics
from tests.api.conftest import Clients
from tests.playing import Attempt, PlayedWorker

UUID = "7c1f0a52-2b6c-4a53-9f0e-5b6d5a0f3f11"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    catalogs: dict[str, dict[str, Any]] = {
        "lake": {"type": "sql", "owners": ["ada"], "databases": ["sales"]},
        "swamp": {"type": "rest"},
    }
    return Config(data=tmp_path).with_settings(MaintenanceSettings(catalogs=catalogs))


@pytest.fixture
async def core(dsn: str, config: Config, settings: CoreSettings) -> AsyncIterator[Core]:
    async with open_core(dsn, all_kinds(config), settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config, routers=[router])


@pytest.fixture
async def clients(app: FastAPI) -> AsyncIterator[Clients]:
    """`ada` owns lake, `carol` has a token for one database of it, `bob` has neither."""
    made = Clients(app)
    async with made.stack:
        await made.token("ada", "analyst", databases=[])
        await made.token("bob", "analyst", databases=[])
        await made.token("carol", "analyst", databases=["catalog:lake.sales"])
        await made.token("grace", "ops", databases=[])
        yield made


@pytest.fixture
async def ada(clients: Clients) -> httpx2.AsyncClient:
    return await clients("ada")


@pytest.fixture
async def bob(clients: Clients) -> httpx2.AsyncClient:
    return await clients("bob")


@pytest.fixture
async def carol(clients: Clients) -> httpx2.AsyncClient:
    return await clients("carol")


@pytest.fixture
async def grace(clients: Clients) -> httpx2.AsyncClient:
    return await clients("grace")


def line(name: str = "orders", namespace: str = "sales", **fields: Any) -> JsonObject:
    """As a look says it of a table that wants a rewrite."""
    why = "50 small files could become few."
    return {
        "namespace": namespace,
        "name": name,
        "uuid": UUID if name == "orders" else f"uuid-{namespace}-{name}",
        "location": f"s3://lake/{namespace}/{name}",
        "snapshot_id": 1,
        "figures": {"data_files": 50, "small_files": 50},
        "issues": [{"code": "small_files", "severity": "warning", "evidence": why, "action": "rewrite_data_files"}],
        "policy": {"maintenance_cadence_hours": {"value": 6, "source": "default"}},
        "recommended": [{"action": "rewrite_data_files", "why": why}],
        "health": "warning",
        **fields,
    }


@dataclass
class Played:
    core: Core

    async def worker(self) -> PlayedWorker:
        link, kinds = self.core.link(), ["tables:lake", "maintenance:lake", "tables:swamp", "maintenance:swamp"]
        registered = await link.register(wire.Register(worker_id="w", version="test", kinds=kinds, slots=10))
        return PlayedWorker(link, registered.session)

    async def claim(self, kind: str, wait: float = 30) -> Attempt:
        [attempt] = await (await self.worker()).claim(kind, limit=1, wait=wait)
        return attempt

    async def seen(self, *lines: JsonObject, last: bool = True) -> None:
        """A round through lake that saw these."""
        [job] = (await self.core.submit([look_job("lake")], public=False)).jobs
        attempt = await self.claim("tables:lake")
        result = {"tables": list(lines), "round": str(job.id), "last": last}
        assert await attempt.finish(result=result) == "accepted"


@pytest.fixture
def unanswered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for the answer to a question: it is as if none had come in time."""

    async def as_it_is(core: Core, job: Job, wait: float) -> Job:
        return job

    monkeypatch.setattr("paddock.jobs.asking.until_ended", as_it_is)


@pytest.fixture
def played(core: Core) -> Played:
    return Played(core)
