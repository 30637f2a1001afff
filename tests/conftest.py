"""A real PostgreSQL for each test process, and for each test a fresh migrated database on it."""

import asyncio
import shutil
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import asyncpg
import pytest
from prometheus_client import CollectorRegistry

from paddock.db.embedded import embedded_postgres
from paddock.db.migrate import migrate
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from tests.kinds import TEST_KINDS

NUMBERS = count(1)


class Server:
    """The embedded server on a thread of its own, so that it outlives the event loops of single tests."""

    def __init__(self) -> None:
        # Not pytest's tmp_path: postgres runs under another account and must be able to reach its folder.
        self.folder = Path(tempfile.mkdtemp(prefix="paddock-test-"))
        self.folder.chmod(0o755)
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._problem: BaseException | None = None
        self.dsn = ""
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._problem is not None:
            raise self._problem

    def _main(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as problem:
            self._problem = problem
            self._ready.set()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        # Nothing here is meant to survive the machine: commits still wait for their WAL, only the disk does not.
        settings = {"fsync": "off", "full_page_writes": "off", "max_connections": "300"}
        async with embedded_postgres(self.folder / "data", settings=settings) as server:
            self.dsn = server.dsn
            await migrate(await self.create_database("paddock_template"))
            self._ready.set()
            await self._stop.wait()

    async def create_database(self, name: str, template: str | None = None) -> str:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        finally:
            await connection.close()
        return self.dsn.replace("/paddock?", f"/{name}?")

    async def drop_database(self, name: str) -> None:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        finally:
            await connection.close()

    def close(self) -> None:
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        shutil.rmtree(self.folder, ignore_errors=True)


class DatabaseClock:
    """Sets the one clock of the system by replacing paddock_now()."""

    def __init__(self, connection: "asyncpg.Connection[asyncpg.Record]", at: datetime) -> None:
        self._connection = connection
        self.at = at

    async def advance(self, delta: timedelta | None = None, *, seconds: float = 0, minutes: float = 0) -> None:
        self.at += (delta or timedelta(0)) + timedelta(seconds=seconds, minutes=minutes)
        await self._connection.execute("UPDATE test_clock SET at = $1", self.at)

    async def release(self) -> None:
        """Back to the real time."""
        await self._connection.execute(
            "CREATE OR REPLACE FUNCTION paddock_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN now()"
        )


async def take_clock(connection: "asyncpg.Connection[asyncpg.Record]") -> DatabaseClock:
    await connection.execute("CREATE TABLE test_clock (at timestamptz NOT NULL)")
    at = await connection.fetchval("INSERT INTO test_clock VALUES (date_trunc('second', now())) RETURNING at")
    await connection.execute(
        "CREATE OR REPLACE FUNCTION paddock_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE "
        "AS 'SELECT at FROM test_clock'"
    )
    # Service rows made before the clock was taken must not look like the future or a gap.
    await connection.execute(
        "UPDATE service SET served_at = paddock_now(), resumed_at = paddock_now() - interval '1 day'"
    )
    return DatabaseClock(connection, at)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
async def dsn(postgres: Server) -> AsyncIterator[str]:
    name = f"test_{next(NUMBERS)}"
    yield await postgres.create_database(name, "paddock_template")
    await postgres.drop_database(name)


@pytest.fixture
async def connection(dsn: str) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """For tests that look behind the core's back."""
    opened = await asyncpg.connect(dsn)
    yield opened
    await opened.close()


@pytest.fixture
async def clock(connection: "asyncpg.Connection[asyncpg.Record]") -> DatabaseClock:
    return await take_clock(connection)


@pytest.fixture
def settings() -> CoreSettings:
    return CoreSettings()


@pytest.fixture
async def core(dsn: str, settings: CoreSettings) -> AsyncIterator[Core]:
    async with open_core(dsn, Kinds(TEST_KINDS), settings, metrics=Metrics(CollectorRegistry())) as opened:
        yield opened
