"""Export jobs on a real Trino: a core, a worker with real runners, and what Trino itself says of their queries."""

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import httpx2
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from prometheus_client import CollectorRegistry

from paddock.config import load
from paddock.engines.engine import Query, Stream
from paddock.engines.trino.engine import TrinoEngine
from paddock.exports import export_files, plain
from paddock.exports.plain import Export, NewExport
from paddock.jobs.core import open_core
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, JobId
from paddock.known_kinds import all_kinds, worker_kinds
from paddock.metrics import Metrics
from paddock.worker.processes import ProcessRunners, RunnerOptions
from paddock.worker.resources import Factories
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker
from tests.exports.crash_scene import Scene
from tests.exports.crashing import PLAN
from tests.trino.asking import alone, make_schema
from tests.trino.server import TrinoServer

T = TypeVar("T")
SCHEMA = "jobs"
# A page each second, for longer than any test.
ENDLESS = "SELECT n FROM blackhole.default.endless"
PRODUCT = "paddock.known_kinds:worker_resources"
PLANNED = "tests.exports.crashing:resources"
IMPATIENT = "tests.trino.export_scene:impatient_resources"


def impatient_resources() -> Factories:
    """As the product's, with a moment between two cold starts instead of seconds."""
    from paddock.exports import running
    from paddock.known_kinds import worker_resources

    running.COLD_START_PAUSE = 0.01
    return worker_resources()


async def until(what: str, look: Callable[[], Awaitable[T | None]], seconds: float = 120) -> T:
    end = time.monotonic() + seconds
    while not (found := await look()):
        assert time.monotonic() < end, f"Waited {seconds:.0f} s in vain until {what}."
        await asyncio.sleep(0.05)
    return found


@dataclass(repr=False)
class TrinoScene(Scene):
    trino: TrinoServer
    # What this scene's queries call themselves, and their resource group: one of them runs at a time.
    source: str

    @contextlib.asynccontextmanager
    async def working(
        self, resources: str = PRODUCT, environment: Mapping[str, str] | None = None, **settings: Any
    ) -> AsyncIterator[Worker]:
        places = {"PADDOCK_CONFIG": str(self.folder / "paddock.toml"), PLAN: str(self.folder / "plan")}
        options = RunnerOptions(
            kinds="paddock.known_kinds:worker_kinds",
            resources=resources,
            environment={**places, **(environment or {})},
        )
        worker = Worker(
            link=self.core.link(),
            kinds=worker_kinds(),
            runners=ProcessRunners(options),
            settings=Settings(worker_id="survivor", **settings),
            version="0",
            metrics=Metrics(CollectorRegistry()),
        )
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            await running

    async def ask(self, sql: str, *, engine: str = "warehouse", role: str | None = None, **payload: Any) -> Export:
        payload = {"engine": engine, "sql": sql, **payload}
        return await plain.create(self.core, NewExport(owner="ada", role=role, payload=payload, request={}, ttl=None))

    async def submitted(self, export: Export, turns: int = 1) -> Job:
        """Once so many turns have left it to Trino."""

        async def look() -> Job | None:
            job = await self.job(export.job_id)
            assert not job.ended, (job.status, job.error_code, job.error_message)
            return job if job.status == "submitted" and job.turn_count == turns else None

        return await until(f"job {export.job_id} is submitted", look)

    async def dead(self, export: Export, turns: int) -> Job:
        """As the so-manieth death of its runner left it."""

        async def look() -> Job | None:
            job = await self.job(export.job_id)
            assert not job.ended, (job.status, job.error_code, job.error_message)
            return job if job.status != "claimed" and job.turn_count == turns else None

        return await until(f"turn {turns} of job {export.job_id} is dead", look)

    async def polled(self, export: Export) -> Job:
        """Its end, without waiting for the times at which it is polled."""

        async def look() -> Job | None:
            job = await self.job(export.job_id)
            if job.status == "submitted":
                with contextlib.suppress(Refused):
                    await self.run_now(export.job_id)
            return job if job.ended else None

        return await until(f"job {export.job_id} ends", look)

    async def unloaded(self, export: Export) -> Export:
        job = await self.polled(export)
        assert job.status == "completed", (job.error_code, job.error_message)
        return await self.look(export)

    async def failed(self, export: Export) -> Job:
        """For good, and at once: nobody tried it again."""
        job = await self.ended(export.job_id)
        assert (job.status, job.turn_count) == ("failed", 1), (job.status, job.error_message)
        return job

    async def rows(self, export: Export) -> pa.Table:
        store, manifest = await export_files.manifest_of(self.config, await self.look(export))
        tables = []
        for part in manifest.files:
            data = await store.read(manifest.key(part))
            tables.append(pq.read_table(pa.BufferReader(data)))
            assert (len(data), tables[-1].num_rows) == (part.bytes, part.rows), part.name
        return pa.concat_tables(tables)

    async def log(self, id: JobId) -> str:
        rows = await self.database.fetch("SELECT lines FROM job_logs WHERE job_id = $1 ORDER BY at, seq", id)
        return "\n".join(str(row["lines"]) for row in rows)

    # What Trino says.

    async def queries(self, **session: Any) -> list[dict[str, Any]]:
        """Those whose session has these values; of this scene's own source unless told otherwise."""
        wanted = session or {"source": self.source}
        async with httpx2.AsyncClient(timeout=60) as client:
            answer = await client.get(f"{self.trino.url}/v1/query", headers={"X-Trino-User": "admin"})
            answer.raise_for_status()
        found: list[dict[str, Any]] = orjson.loads(answer.content)
        return [query for query in found if all(query["session"].get(name) == wanted[name] for name in wanted)]

    async def unloads(self) -> list[dict[str, Any]]:
        return [query for query in await self.queries() if query["query"].startswith("CREATE TABLE")]

    async def tables(self) -> list[str]:
        async with self.admin() as engine:
            rows = await engine.rows(f"SHOW TABLES FROM hive.{SCHEMA}", Query(""))
            return [str(row[0]) for row in rows]

    @contextlib.asynccontextmanager
    async def admin(self, **settings: Any) -> AsyncIterator[TrinoEngine]:
        engine = TrinoEngine("admin", self.trino.settings(client_tags=["admin"], **settings))
        try:
            yield engine
        finally:
            await engine.close()

    @contextlib.asynccontextmanager
    async def holding(self) -> AsyncIterator[None]:
        """Whatever this scene asks meanwhile waits in its resource group."""
        engine = TrinoEngine("holder", self.trino.settings(source=self.source, encodings=[]))
        try:
            async with engine.open(Query(ENDLESS)) as stream:
                reading = asyncio.create_task(drained(stream))
                await until("the holder runs", lambda: self.runs(stream.progress.query_id))
                yield
                reading.cancel()
        finally:
            await engine.close()

    async def runs(self, query_id: str | None) -> bool:
        return any(query["queryId"] == query_id and query["state"] == "RUNNING" for query in await self.queries())

    def objects(self) -> set[str]:
        """What there is in the managed store, whoever wrote it."""
        store = self.trino.warehouse / self.source
        return {str(path.relative_to(store)) for path in store.rglob("*") if path.is_file()}


async def drained(stream: Stream) -> None:
    async for _ in stream.batches():
        pass


def runners_of(parent: psutil.Process) -> list[psutil.Process]:
    found = []
    for process in parent.children():
        with contextlib.suppress(psutil.NoSuchProcess):  # others of this process's children come and go
            if any("worker.runner" in part for part in process.cmdline()):
                found.append(process)
    return found


def in_order(table: pa.Table, *columns: str) -> pa.Table:
    return table.sort_by([(column, "ascending") for column in columns]).combine_chunks()


def toml(name: str, table: Mapping[str, Any]) -> str:
    """JSON's strings, numbers and lists are TOML's too."""
    lines = [f"{key} = {orjson.dumps(value).decode()}" for key, value in table.items()]
    return "\n".join([f"[engines.{name}]", *lines, ""])


def configuration(
    trino: TrinoServer, folder: Path, store: str, source: str, engines: Mapping[str, Mapping[str, Any]]
) -> str:
    common: dict[str, Any] = {
        "type": "trino",
        "url": trino.url,
        "user": "lab",
        "requires_role": False,
        "catalog": "tpch",
        "schema": "tiny",
        "source": source,
    }
    unload = {"unload_catalog": "hive", "unload_schema": SCHEMA, "unload_location": f"local:///{source}"}
    known: dict[str, Mapping[str, Any]] = {"warehouse": unload, "paged": {"encodings": []}, **engines}
    tables = [toml(name, {**common, **table}) for name, table in known.items()]
    lake = f'[destinations.lake]\nurl = "{folder}/lake"\n'
    return "\n".join(['data = "data"', f'object_store = "{store}"', *tables, lake])


@contextlib.asynccontextmanager
async def trino_scene(
    trino: TrinoServer, folder: Path, dsn: str, *, store: str | None = None, **engines: Mapping[str, Any]
) -> AsyncIterator[TrinoScene]:
    source = f"held-{uuid.uuid4().hex}"
    text = configuration(trino, folder, store or str(trino.warehouse / source), source, engines)
    (folder / "paddock.toml").write_text(text)
    config = load({"PADDOCK_CONFIG": str(folder / "paddock.toml")})
    async with open_core(dsn, all_kinds(), metrics=Metrics(CollectorRegistry())) as core:
        database = await asyncpg.connect(dsn)
        try:
            scene = TrinoScene(core, database, dsn, folder, config, trino, source)
            scene.plan()
            async with scene.admin() as engine:
                with alone(trino):
                    for catalog in ("hive", "hive_s3"):
                        await make_schema(engine, f"{catalog}.{SCHEMA}")
                    await engine.rows(MAKE_ENDLESS, Query(""))
            yield scene
        finally:
            await database.close()


SLOWLY = "split_count = 1, pages_per_split = 100000, rows_per_page = 1, page_processing_delay = '1s'"
MAKE_ENDLESS = f"CREATE TABLE IF NOT EXISTS blackhole.default.endless (n bigint) WITH ({SLOWLY})"
