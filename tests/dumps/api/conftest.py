"""The app with two databases to dump, a store in a folder, and tests that play the worker."""

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from fastapi import FastAPI
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.config import Config
from paddock.dumps.model import Finished
from paddock.dumps.settings import DumpSettings
from paddock.jobs import wire
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.storage.store import open_store
from tests.api.conftest import Clients
from tests.playing import Attempt, PlayedWorker

SQL = b"BEGIN TRANSACTION;\nCOMMIT;\n" * 100


@pytest.fixture
def config(tmp_path: Path) -> Config:
    databases: dict[str, dict[str, Any]] = {
        "shop": {"type": "sqlite", "path": str(tmp_path / "shop.db"), "owners": ["ada"]},
        "books": {"type": "postgres", "url": "postgresql://books.example/books"},
    }
    return Config(data=tmp_path).with_settings(DumpSettings(databases=databases))


@pytest.fixture
async def core(dsn: str, config: Config, settings: CoreSettings) -> AsyncIterator[Core]:
    async with open_core(dsn, all_kinds(config), settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config)


@pytest.fixture
async def clients(app: FastAPI) -> AsyncIterator[Clients]:
    """`ada` owns shop, `carol` has a token for it, `bob` has neither."""
    made = Clients(app)
    async with made.stack:
        await made.token("ada", "analyst", databases=[])
        await made.token("bob", "analyst", databases=[])
        await made.token("carol", "analyst", databases=["shop"])
        await made.token("grace", "ops", databases=[])
        await made.token("root", "admin", databases=[])
        await made.token("worker", "worker")
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


@dataclass
class Played:
    """A worker that offers dumps of shop and books, and what its dumps become."""

    core: Core
    config: Config

    async def claim(self, database: str = "shop") -> Attempt:
        worker = await self._worker()
        while True:
            attempt = await worker.claim_one(f"dump:{database}")
            if attempt.job.cleanup_of is None:
                return attempt
            await attempt.finish()

    async def _worker(self) -> PlayedWorker:
        """A new one each time: tests let weeks pass between two claims."""
        link, kinds = self.core.link(), ["dump:shop", "dump:books"]
        registered = await link.register(wire.Register(worker_id="w", version="test", kinds=kinds, slots=10))
        return PlayedWorker(link, registered.session)

    async def finished(self, attempt: Attempt, content: bytes = SQL, **fields: Any) -> Finished:
        """The file as a worker leaves it: under the key of its draft, named by the result alone."""
        id: str = orjson.loads(bytes(attempt.job.payload))["dump_id"]
        key = f"exports/{id.replace('export_', 'dump_', 1)}/draft1.sql"
        await open_store(self.config.object_store).put(key, content)
        return Finished.model_validate(
            {
                "key": key,
                "etag": "5d41402abc4b2a76b9719d911017c592-1",
                "size": len(content),
                "part_size": 8 << 20,
                "digest": "ab" * 32,
                "rows": 30,
                "table_count": len(fields.get("tables") or ("orders", "another")),
                "tables": {"orders": 20, "people": 10},
                "point_in_time": "2026-11-16T09:30:01.250000+00:00",
                "restarts": 1,
                "file_name": "shop.sql",
                "media_type": "application/sql",
                **fields,
            }
        )

    async def complete(self, attempt: Attempt | None = None, content: bytes = SQL, **fields: Any) -> Finished:
        attempt = attempt or await self.claim()
        made = await self.finished(attempt, content, **fields)
        assert await attempt.finish(result=made.model_dump(mode="json")) == "accepted"
        return made

    def files(self) -> list[str]:
        root = self.config.data / "objects"
        return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


@pytest.fixture
def played(core: Core, config: Config) -> Played:
    return Played(core, config)


Start = Callable[..., Awaitable[str]]


@pytest.fixture
def start(ada: httpx2.AsyncClient) -> Start:
    async def started(client: httpx2.AsyncClient | None = None, **body: Any) -> str:
        answered = await (client or ada).post("/export/dump", json={"async": True, "database": "shop", **body})
        assert answered.status_code == 202, answered.text
        id: str = answered.json()["result"]["jobId"]
        return id

    return started


async def status(client: httpx2.AsyncClient, id: str, **asked: Any) -> dict[str, Any]:
    answered = await client.get(f"/export/jobs/{id}", params=asked)
    assert answered.status_code == 200, answered.text
    found: dict[str, Any] = orjson.loads(answered.content)["result"]
    return found


def error(answered: httpx2.Response) -> tuple[int, str, str]:
    """Status, code, and the sentence: an error of these paths has nothing else but a hint."""
    body = answered.json()
    assert [name for name in body if name != "hint"] == ["error"], body
    assert all(isinstance(text, str) for text in body.values())
    return answered.status_code, answered.headers["x-error-code"], body["error"]
