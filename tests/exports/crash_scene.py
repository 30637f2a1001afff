"""A core, a worker with real runners that die as planned, and what readers see of the files meanwhile."""

import asyncio
import contextlib
import hashlib
import os
import random
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import asyncpg
import orjson
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from prometheus_client import CollectorRegistry

from paddock.config import Config, load
from paddock.exports import export_files, leftovers, plain
from paddock.exports.plain import Export, NewExport
from paddock.exports.settings import ExportSettings
from paddock.jobs.core import Core, open_core
from paddock.jobs.errors import Refused
from paddock.jobs.model import Job, JobId
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.storage.store import open_store
from paddock.worker.supervisor import Worker
from tests.exports.crashing import HELD, worker_of

T = TypeVar("T")
DEADLINE = 60.0
# Three batches of the engine, three files and a rest: uploads happen while the query still runs.
ROWS = 150_000
OPTIONS = {"file_bytes": 1 << 20, "row_group_rows": 5_000}
IN_ORDER = "SELECT * FROM 'rows.parquet' ORDER BY id"
BACKWARDS = "SELECT * FROM 'rows.parquet' ORDER BY id DESC LIMIT 90000"
CONFIGURATION = """
data = "data"
[engines.local]
type = "duckdb"
roots = ["{files}"]
spill_folder = "{folder}/spill"
[destinations.lake]
url = "{lake}"
"""


def some_table(rows: int = ROWS) -> pa.Table:
    noise = random.Random(rows)
    columns = {
        "id": pa.array(range(rows), pa.int64()),
        "name": pa.array([None if n % 11 == 0 else f"näme {n % 97}" for n in range(rows)], pa.string()),
        "amount": pa.array([Decimal(n * n % 99_991).scaleb(-2) for n in range(rows)], pa.decimal128(12, 2)),
        # Nothing makes it smaller: the files have the size that their rows have.
        "noise": pa.array([noise.randbytes(18) for _ in range(rows)], pa.binary()),
    }
    return pa.table(columns)


def kills(points: Sequence[str]) -> list[str]:
    """Lines of a plan: each point the first time, unless it says which."""
    return [f"kill {point}" if " " in point else f"kill {point} 1" for point in points]


async def until(what: str, look: Callable[[], Awaitable[T | None]]) -> T:
    deadline = time.monotonic() + DEADLINE
    while not (found := await look()):
        assert time.monotonic() < deadline, f"Waited {DEADLINE:.0f} s in vain until {what}."
        await asyncio.sleep(0.01)
    return found


@dataclass(repr=False)
class Scene:
    core: Core
    # To look behind the core's back.
    database: "asyncpg.Connection[asyncpg.Record]"
    dsn: str
    folder: Path
    config: Config

    def plan(self, *lines: str) -> None:
        new = self.folder / "plan.new"
        new.write_text("".join(f"{line}\n" for line in lines))
        new.replace(self.folder / "plan")

    def planned(self) -> int:
        return len((self.folder / "plan").read_text().splitlines())

    @contextlib.asynccontextmanager
    async def working(self, **settings: Any) -> AsyncIterator[Worker]:
        worker = worker_of(self.core, self.folder / "plan", "survivor", **settings)
        running = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            worker.stop()
            await running

    @contextlib.asynccontextmanager
    async def doomed_worker(self) -> AsyncIterator[asyncio.subprocess.Process]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.exports.crashing", self.dsn, str(self.folder / "plan"), start_new_session=True
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def export(
        self, *, to: str | None = None, if_exists: str = "error", sql: str = IN_ORDER, **payload: Any
    ) -> Export:
        payload = {"engine": "local", "sql": sql, "options": OPTIONS, **payload}
        if to is not None:
            payload["destination"] = {"name": "lake", "prefix": to, "if_exists": if_exists}
        return await plain.create(self.core, NewExport(owner="ada", role=None, payload=payload, request={}, ttl=None))

    async def job(self, id: JobId) -> Job:
        found = await self.core.job(id)
        assert found is not None
        return found

    async def crashed(self, id: JobId, times: int) -> Job:
        """The job as the so-manieth death of its runner left it."""
        job = await self.crashed_or_ended(id, times)
        assert not job.ended, f"It {job.status} instead of dying: {job.error_code} {job.error_message}"
        return job

    async def crashed_or_ended(self, id: JobId, times: int) -> Job:
        async def look() -> Job | None:
            job = await self.job(id)
            return job if job.ended or (job.status == "pending" and job.turn_count == times) else None

        return await until(f"runner {times} of job {id} is dead", look)

    async def run_now(self, id: JobId) -> None:
        await self.core.run_now(id, actor="test")

    async def cancel(self, export: Export) -> None:
        verdicts = await self.core.cancel([export.job_id], actor="ada")
        assert verdicts == {export.job_id: "cancelled"}

    async def ended(self, id: JobId) -> Job:
        async def look() -> Job | None:
            job = await self.job(id)
            return job if job.ended else None

        return await until(f"job {id} ends", look)

    async def completed(self, export: Export) -> Export:
        job = await self.ended(export.job_id)
        assert job.status == "completed", (job.error_code, job.error_message)
        return await self.look(export)

    async def cleaned(self, export: Export) -> Job:
        """The cleanup of an export's job, once it has ended."""

        async def look() -> UUID | None:
            found: UUID | None = await self.database.fetchval(
                "SELECT id FROM job_history WHERE cleanup_of = $1", export.job_id
            )
            return found

        return await self.job(JobId(await until("its cleanup ends", look)))

    async def cleanup_of(self, export: Export) -> JobId:
        async def look() -> UUID | None:
            found: UUID | None = await self.database.fetchval(
                "SELECT id FROM jobs WHERE cleanup_of = $1", export.job_id
            )
            return found

        return JobId(await until("its cleanup is there", look))

    async def held(self) -> None:
        async def look() -> bool:
            return (self.folder / HELD).exists()

        await until("the runner waits at its point", look)

    def let_go(self) -> None:
        (self.folder / HELD).unlink()

    # What readers see.

    async def look(self, export: Export) -> Export:
        found = await plain.get(self.core.db, export.id)
        assert found is not None
        return found

    async def sees_nothing(self, export: Export) -> None:
        found = await self.look(export)
        assert found.status != "completed"
        assert (found.manifest, found.rows, found.bytes) == (None, None, None)
        with pytest.raises(Refused, match="it has no files"):
            await export_files.files_of(self.config, found)

    async def rows(self, export: Export) -> pa.Table:
        """Through the manifest that the export's row names, and nothing else."""
        store, manifest = await export_files.manifest_of(self.config, await self.look(export))
        assert store.local is not None
        files = [(part.name, part.rows, part.bytes, part.sha256) for part in manifest.files]
        assert (manifest.rows, manifest.bytes) == (sum(file[1] for file in files), sum(file[2] for file in files))
        return read_files(store.local / manifest.prefix, files)

    def lake(self) -> Path:
        """The destination as a folder, which it may be."""
        url = self.config.of(ExportSettings).destinations["lake"]["url"]
        if "://" not in url:
            return Path(url)
        copied = self.folder / "lake"
        shutil.rmtree(copied, ignore_errors=True)
        backend = open_store(url).backend
        for entry in backend.entries("", unfinished=True):
            path = copied / entry.key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(backend.read_range(entry.key, 0, entry.size) if entry.size else b"")
        return copied

    def delivered(self, prefix: str) -> tuple[str, pa.Table] | None:
        """What stands at a destination, and the job that brought it. Every file of the manifest has to be there."""
        folder = self.lake() / prefix
        if not (folder / "_manifest.json").exists():
            return None
        manifest = orjson.loads((folder / "_manifest.json").read_bytes())
        files = [(file["name"], file["rows"], file["bytes"], file["sha256"]) for file in manifest["files"]]
        return manifest["job"], read_files(folder, files)

    def in_place(self, rows: pa.Table) -> bool:
        """Whether the destination's manifest names exactly these rows, and all its files are there."""
        found = self.delivered("daily")
        return found is not None and bool(found[1].equals(rows))

    def at_destination(self, prefix: str) -> set[str]:
        """Everything there is, temporary files too."""
        return files_below(self.lake() / prefix)

    def named_at_destination(self, prefix: str) -> set[str]:
        manifest = orjson.loads((self.lake() / prefix / "_manifest.json").read_bytes())
        return {"_manifest.json", *(file["name"] for file in manifest["files"])}

    # What is left behind.

    async def collect(self) -> int:
        """As the hourly pass does two days later."""
        old = (datetime.now(UTC) - timedelta(days=2)).timestamp()
        for name in self.managed():
            os.utime(self.folder / "data" / "objects" / name, (old, old))
        return int((await leftovers.collect(self.core.db, self.config))["removed"])

    def managed(self) -> set[str]:
        return files_below(self.folder / "data" / "objects")

    async def named(self, *exports: Export) -> set[str]:
        """The files that the rows of these exports name, manifests included."""
        found = set()
        for export in exports:
            _, manifest = await export_files.manifest_of(self.config, await self.look(export))
            found |= {manifest.key(part) for part in manifest.files} | {f"{manifest.prefix}/_manifest.json"}
        return found

    async def locks(self) -> list[str]:
        found = await self.database.fetch("SELECT lock_key FROM jobs WHERE lock_key IS NOT NULL")
        return [row["lock_key"] for row in found]

    def fetched(self) -> set[str]:
        """Of remote sources, on the disk of whoever runs the query."""
        return {name for name in files_below(self.folder / "spill") if not name.endswith(".lock")}

    def scratch(self) -> set[str]:
        return {name for name in files_below(self.folder / "data" / "scratch") if not name.endswith(".lock")}


def read_files(folder: Path, files: Sequence[tuple[str, int, int, str | None]]) -> pa.Table:
    tables = []
    for name, rows, size, sha256 in files:
        data = (folder / name).read_bytes()
        assert (len(data), hashlib.sha256(data).hexdigest()) == (size, sha256), name
        table = pq.read_table(pa.BufferReader(data))
        assert table.num_rows == rows, name
        tables.append(table)
    return pa.concat_tables(tables)


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def engine_children() -> list[int]:
    """Of this test's own runners; a whole `paddock up` of other tests is further down."""
    found = []
    for runner in psutil.Process().children():
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [process.pid for process in runner.children() if _is_engine(process)]
    return found


def _is_engine(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.status() != psutil.STATUS_ZOMBIE and any("duckdb_child" in part for part in process.cmdline())
    return False


@contextlib.asynccontextmanager
async def scene_in(
    folder: Path, files: Path, dsn: str, lake: str | None = None, more: str = ""
) -> AsyncIterator[Scene]:
    text = CONFIGURATION.format(folder=folder, files=files, lake=lake or folder / "lake") + more
    (folder / "paddock.toml").write_text(text)
    config = load({"PADDOCK_CONFIG": str(folder / "paddock.toml")})
    async with open_core(dsn, all_kinds(), metrics=Metrics(CollectorRegistry())) as core:
        database = await asyncpg.connect(dsn)
        try:
            scene = Scene(core, database, dsn, folder, config)
            scene.plan()
            yield scene
        finally:
            await database.close()
