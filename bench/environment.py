"""What every benchmark stands on: one PostgreSQL for the run, a fresh database per contender, and a meter.

The meter counts what the machine really spent: the CPU of *all* PostgreSQL processes (autovacuum and the WAL writer
included, backends that have ended too: the postmaster has reaped them and carries their time) and of the processes
it is told of, with their children. WAL is what the server wrote meanwhile, whoever wrote it; so only one contender
runs at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import psutil

from paddock.db.embedded import EmbeddedPostgres, embedded_postgres

# A checkpoint in the middle of a round would be charged to whoever runs then; vacuum must keep up with quick churn.
SETTINGS = {"max_wal_size": "8GB", "checkpoint_timeout": "1h", "autovacuum_naptime": "1s"}


@dataclass(frozen=True)
class Database:
    name: str
    dsn: str

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.dsn)
        try:
            yield connection
        finally:
            await connection.close()


@dataclass(frozen=True)
class Usage:
    seconds: float
    server_cpu: float
    process_cpu: float
    wal_bytes: int

    @property
    def cpu(self) -> float:
        return self.server_cpu + self.process_cpu


@dataclass
class Measurement:
    """Open while its block runs; `usage` is there once the block has ended."""

    _usage: Usage | None = None

    @property
    def usage(self) -> Usage:
        if self._usage is None:
            raise RuntimeError("The measurement has not ended: read its usage after the block.")
        return self._usage


@dataclass
class Env:
    server: EmbeddedPostgres
    quick: bool
    postmaster: psutil.Process
    postgres_version: str
    say: Callable[[str], None]
    _databases: int = field(default=0)

    @contextlib.asynccontextmanager
    async def database(self, purpose: str, **settings: int) -> AsyncIterator[Database]:
        """A fresh database, dropped afterwards; `settings` hold for every connection to it. Starts right after a checkpoint, so that none pays for another's
        dirty pages and all pay for their own full-page images."""
        self._databases += 1
        name = f"bench_{purpose}_{self._databases}"
        async with self._admin() as admin:
            await admin.execute(f'CREATE DATABASE "{name}"')
            for setting, value in settings.items():
                await admin.execute(f'ALTER DATABASE "{name}" SET {setting} = {value}')
            await admin.execute("CHECKPOINT")
        parts = urlsplit(self.server.dsn)
        try:
            yield Database(name, f"{parts.scheme}://{parts.netloc}/{name}?{parts.query}")
        finally:
            async with self._admin() as admin:
                await admin.execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    @contextlib.asynccontextmanager
    async def measure(self, pids: Iterable[int] = ()) -> AsyncIterator[Measurement]:
        roots = [psutil.Process(pid) for pid in pids]
        measurement = Measurement()
        wal_before = await self.wal_position()
        server_before = tree_cpu(self.postmaster)
        processes_before = [tree_cpu(root) for root in roots]
        last_seen = list(processes_before)
        watcher = asyncio.create_task(_keep_last_seen(roots, last_seen))
        started = time.perf_counter()
        try:
            yield measurement
        finally:
            seconds = time.perf_counter() - started
            watcher.cancel()
            _look(roots, last_seen)
            measurement._usage = Usage(
                seconds=seconds,
                server_cpu=tree_cpu(self.postmaster) - server_before,
                process_cpu=sum(last_seen) - sum(processes_before),
                wal_bytes=await self.wal_position() - wal_before,
            )

    async def wal_position(self) -> int:
        async with self._admin() as admin:
            return int(await admin.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

    @contextlib.asynccontextmanager
    async def _admin(self) -> AsyncIterator[asyncpg.Connection]:
        connection = await asyncpg.connect(self.server.dsn)
        try:
            yield connection
        finally:
            await connection.close()


def own_cpu(process: psutil.Process) -> float:
    """Its own time and that of the children it has reaped."""
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def tree_cpu(root: psutil.Process) -> float:
    """Own, living descendants', and ended descendants' CPU seconds.

    A child that ends between the reads would be counted twice or not at all: look again when the root has reaped
    something meanwhile.
    """
    while True:
        reaped = _reaped(root)
        living = 0.0
        for child in root.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                living += own_cpu(child)
        total = own_cpu(root) + living
        if _reaped(root) == reaped:
            return total


def _reaped(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.children_user + times.children_system)


def resident_bytes(pids: Iterable[int]) -> int:
    """Unique memory of the processes and their children: shared pages are not growth of ours."""
    total = 0
    for pid in pids:
        root = psutil.Process(pid)
        for process in (root, *root.children(recursive=True)):
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_full_info().uss
    return total


def _look(roots: list[psutil.Process], last_seen: list[float]) -> None:
    for position, root in enumerate(roots):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            last_seen[position] = tree_cpu(root)


async def _keep_last_seen(roots: list[psutil.Process], last_seen: list[float]) -> None:
    """A process that ends inside the measurement counts with what was last seen of it."""
    while True:
        await asyncio.sleep(0.5)
        _look(roots, last_seen)


@contextlib.asynccontextmanager
async def environment(*, quick: bool, say: Callable[[str], None]) -> AsyncIterator[Env]:
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # a server that dropped from root to another user must reach its own folder
        async with embedded_postgres(Path(folder) / "postgres", settings=SETTINGS) as server:
            connection = await asyncpg.connect(server.dsn)
            try:
                for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                    value = await connection.fetchval("SELECT current_setting($1)", setting)
                    if value != "on":
                        raise RuntimeError(f"{setting} is {value}: a server that may lose data measures nothing.")
                version = str(await connection.fetchval("SHOW server_version")).split()[0]
            finally:
                await connection.close()
            yield Env(server, quick, psutil.Process(server.pid), version, say)
