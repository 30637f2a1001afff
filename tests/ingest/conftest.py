"""A control plane's core with a worker inside this process that runs real commands: sources are scripts in a folder."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from paddock.api.app import create_app
from paddock.config import Config, load
from paddock.db.pool import Database
from paddock.ingest import kinds as ingest_kinds
from paddock.ingest import runs
from paddock.ingest.model import Run
from paddock.ingest.request import new_run
from paddock.ingest.resources import IngestResources
from paddock.jobs import reading
from paddock.jobs.bulk import BULK
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.web import pages
from paddock.worker.local import LocalRunner
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker
from tests.api.conftest import Clients

# Gives the numbers from the session's `after` up to `total`, as many as it is asked for.
NUMBERS = """
import json, os
config = json.load(open(os.environ["PADDOCK_IN"] + "/config.json"))
path = os.environ["PADDOCK_SESSION"]
after = json.load(open(path))["after"] if os.path.exists(path) else 0
last = min(after + int(os.environ["PADDOCK_LIMIT"]), config["total"])
with open(os.environ["PADDOCK_OUT"] + "/records.jsonl", "w") as out:
    for n in range(after + 1, last + 1):
        out.write(json.dumps({"id": n, "data": {"n": n, "square": n * n}}) + "\\n")
with open(os.environ["PADDOCK_OUT"] + "/session.json", "w") as out:
    json.dump({"session": {"after": last}, "has_more": last < config["total"]}, out)
print("fetched up to", last)
"""
# Rejects multiples of seven, cannot do multiples of eleven, and says whether the others are even.
SEVENS = """
import json, os
out = {name: open(os.environ["PADDOCK_OUT"] + f"/{name}.jsonl", "w") for name in ("features", "rejections", "errors")}
for line in open(os.environ["PADDOCK_IN"] + "/records.jsonl"):
    record = json.loads(line)
    n = record["data"]["n"]
    if n % 7 == 0:
        out["rejections"].write(json.dumps({"id": record["id"], "reason": "a multiple of seven"}) + "\\n")
    elif n % 11 == 0:
        out["errors"].write(json.dumps({"id": record["id"], "error": "eleven is too hard"}) + "\\n")
    else:
        out["features"].write(json.dumps({"id": record["id"], "features": {"even": n % 2 == 0}}) + "\\n")
"""
# What the workers of these tests run.
OURS = (
    *("run_ingester", "run_hooks", "publish_batch", "ingest_check"),
    *("run_ingester:kubernetes", "run_hooks:kubernetes"),
    *("remove_ingest_files", "scheduled_ingest", "bulk"),
)


@dataclass
class Bench:
    """Sources and hooks of one test, and what makes runs of them."""

    core: Core
    folder: Path
    config: Config
    sources: dict[str, dict[str, Any]] = field(default_factory=dict)
    hooks: dict[str, dict[str, Any]] = field(default_factory=dict)

    def script(self, name: str, text: str) -> list[str]:
        path = self.folder / f"{name}.py"
        path.write_text(text)
        return [sys.executable, "-S", str(path)]

    def source(self, name: str, text: str = NUMBERS, **settings: Any) -> None:
        self.sources[name] = {"command": self.script(name, text), **settings}
        self._configure()

    def hook(self, name: str, text: str, **settings: Any) -> None:
        self.hooks[name] = {"command": self.script(name, text), **settings}
        self._configure()

    def _configure(self) -> None:
        environ = {
            "PADDOCK_INGEST_SOURCES": json.dumps(self.sources),
            "PADDOCK_INGEST_HOOKS": json.dumps(self.hooks),
            "PADDOCK_DATA": str(self.folder / "data"),
            "PADDOCK_SCRATCH": str(self.folder / "scratch"),
            **self.environ(),
        }
        self.config = load(environ, self.folder)

    def environ(self) -> dict[str, str]:
        """Further settings."""
        return {}

    async def start(self, source: str, **asked: Any) -> Run:
        return await runs.start(self.core, new_run(self.config, source, owner="ann", **asked), actor="ann")

    async def run(self, source: str, **asked: Any) -> Run:
        """A run from its start to its end."""
        return await self.ended(await self.start(source, **asked))

    async def ended(self, run: Run) -> Run:
        async with self.worker():
            return await self.when(run, lambda now: not now.live)

    async def when(self, run: Run, condition: Any) -> Run:
        async with asyncio.timeout(60):
            while True:
                now = await runs.get(self.core.db, run.id)
                assert now is not None
                if condition(now):
                    return now
                await asyncio.sleep(0.01)

    @asynccontextmanager
    async def worker(self) -> AsyncIterator[Worker]:
        """Two of them, as `serve` and `worker` are: what people's machines run, and what the control plane does itself."""
        resources: dict[type, object] = {
            Core: self.core,
            Database: self.core.db,
            Config: self.config,
            IngestResources: IngestResources(self.config),
        }
        workers = []
        for internal in (False, True):
            kinds = Kinds(kind for kind in self.core.kinds if kind.internal is internal and kind.name in OURS)
            workers.append(
                Worker(
                    link=self.core.link(internal=internal),
                    kinds=kinds,
                    runners=LocalRunner(kinds, resources),
                    settings=Settings(worker_id=f"w-{internal}", concurrency=4),
                    version="test",
                    metrics=self.core.metrics,
                )
            )
        tasks = [asyncio.create_task(worker.run()) for worker in workers]
        try:
            yield workers[0]
        finally:
            for worker in workers:
                worker.stop()
            await asyncio.gather(*tasks)

    async def offered(self, kind: str) -> None:
        """A worker that was just started is known to the database a moment later."""
        async with asyncio.timeout(60):
            while kind not in {known.name for known in await reading.kinds(self.core.db) if known.offered}:  # noqa: ASYNC110  it is a row of the database that comes
                await asyncio.sleep(0.01)

    async def rows(self, source: str) -> list[dict[str, Any]]:
        """All that is published, in the order in which it was fetched."""
        import pyarrow.parquet as pq

        found: list[dict[str, Any]] = []
        files = await runs.files(self.core.db, source, limit=1000)
        for file in sorted(files, key=lambda file: (file.run_id, file.batch)):
            path = self.folder / "data" / "objects" / file.manifest.rpartition("/")[0] / "records.parquet"
            found += pq.read_table(path).to_pylist()
        return found


@pytest.fixture
async def bench(dsn: str, settings: CoreSettings, tmp_path: Path) -> AsyncIterator[Bench]:
    config = load({"PADDOCK_DATA": str(tmp_path / "data")}, tmp_path)
    known = Kinds([*ingest_kinds.step_kinds(config), *ingest_kinds.internal_kinds(config), BULK])
    async with open_core(dsn, known, settings, metrics=Metrics(CollectorRegistry())) as core:
        yield Bench(core, tmp_path, config)


@dataclass
class Served(Bench):
    """The same behind the API: `ada` owns the source `numbers`, `bob` owns nothing, `grace` is an operator."""

    clients: Clients | None = None

    async def client(self, name: str) -> httpx2.AsyncClient:
        assert self.clients is not None
        return await self.clients(name)


@pytest.fixture
async def served(dsn: str, settings: CoreSettings, tmp_path: Path) -> AsyncIterator[Served]:
    config = load({"PADDOCK_DATA": str(tmp_path / "data")}, tmp_path)
    async with open_core(dsn, all_kinds(config), settings, metrics=Metrics(CollectorRegistry())) as core:
        bench = Served(core, tmp_path, config)
        bench.hook("sevens", SEVENS)
        bench.source(
            "numbers",
            config={"total": 10},
            batch_size=4,
            hooks=["sevens"],
            owners=["ada"],
            secrets={"TOKEN": {"env": "TOKEN_OF_NUMBERS"}},
            description="Numbers & squares",
        )
        bench.source("hidden", config={"total": 3})
        bench.clients = Clients(create_app(core, bench.config, routes=pages.routes()))
        async with bench.clients.stack:
            for name, role in (("ada", "analyst"), ("bob", "analyst"), ("grace", "ops"), ("worker", "worker")):
                await bench.clients.token(name, role)  # type: ignore[arg-type]  # each is a role
            yield bench
