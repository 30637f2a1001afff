"""A real PostgreSQL for each test process, and for each test an empty migrated database on it.

Emptying a database takes milliseconds, copying the template about a second: a database goes from test to test as long
as it looks like the template again once it is emptied."""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path

import asyncpg
import hypothesis
import pytest
import structlog
from prometheus_client import CollectorRegistry

from paddock import log
from paddock.db.embedded import embedded_postgres
from paddock.db.migrate import migrate
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.kinds import Kinds
from paddock.metrics import Metrics
from tests.kinds import TEST_KINDS
from tests.sharing import pytest_xdist_make_scheduler as pytest_xdist_make_scheduler
from tests.storage.servers import azure_server as azure_server
from tests.storage.servers import moto_server as moto_server
from tests.storage.servers import s3_server as s3_server

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background so, and the processes that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

# An example that takes long on a busy machine is no failure.
hypothesis.settings.register_profile(
    "paddock", hypothesis.settings.default, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("paddock")

NUMBERS = count(1)
REAL_CLOCK = (
    "CREATE OR REPLACE FUNCTION paddock_now() RETURNS timestamptz LANGUAGE sql STABLE PARALLEL SAFE RETURN now()"
)
LONELY = (
    "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
    " WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
)
TABLES = (
    "SELECT c.oid::regclass::text AS name FROM pg_class c WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition"
    " AND c.relnamespace = 'public'::regnamespace AND c.relname <> 'schema_migrations'"
)
BLOATED = "SELECT bool_or(relpages > 100) FROM pg_class WHERE relnamespace = 'public'::regnamespace"
# The same as in the template: nobody changed the schema. It is ten times cheaper than SHAPE, which tells whether what
# somebody changed is as it was again. The clock is put back by each test that takes it.
UNTOUCHED = """
SELECT concat_ws(' ',
    (SELECT sum(hashint8(xmin::text::bigint)::bigint + hashoid(oid)) FROM pg_class WHERE oid >= 16384),
    (SELECT sum(hashint8(xmin::text::bigint)::bigint) FROM pg_attribute WHERE attrelid >= 16384),
    (SELECT sum(hashint8(xmin::text::bigint)::bigint + hashoid(oid)) FROM pg_constraint),
    (SELECT sum(hashint8(xmin::text::bigint)::bigint + hashoid(oid)) FROM pg_trigger),
    (SELECT sum(hashint8(xmin::text::bigint)::bigint) FROM schema_migrations),
    (SELECT sum(hashint8(xmin::text::bigint)::bigint + hashoid(oid)) FROM pg_proc WHERE oid >= 16384 AND proname <> 'paddock_now'))
"""
SHAPE = """
SELECT md5(string_agg(part, E'\\n' ORDER BY part)) FROM (
    SELECT concat_ws(' ', c.oid::regclass, c.relkind, c.reloptions, a.attname, a.atttypid::regtype, a.attnotnull, a.attgenerated) AS part
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE c.relnamespace = 'public'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid)) FROM pg_constraint
    WHERE connamespace = 'public'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', oid::regprocedure, provolatile, prosrc, pg_get_function_sqlbody(oid)) FROM pg_proc
    WHERE pronamespace = 'public'::regnamespace
    UNION ALL
    SELECT concat_ws(' ', tgrelid::regclass, tgname) FROM pg_trigger WHERE NOT tgisinternal
    UNION ALL
    SELECT concat_ws(' ', capability, version, checksum) FROM schema_migrations
) parts
"""


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
        self.free: list[tuple[str, str]] = []
        # UNTOUCHED and SHAPE of the template.
        self._template: tuple[str, str] | None = None
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
        # Another version: PADDOCK_TEST_PG_BIN=/usr/lib/postgresql/15/bin scripts/test
        pg_bin = os.environ.get("PADDOCK_TEST_PG_BIN")
        async with embedded_postgres(
            self.folder / "data", pg_bin=Path(pg_bin) if pg_bin else None, settings=settings
        ) as server:
            self.dsn = server.dsn
            await migrate(await self.create_database("paddock_template"))
            self._ready.set()
            await self._stop.wait()

    async def create_database(self, name: str, template: str | None = None) -> str:
        connection = await asyncpg.connect(self.dsn)
        try:
            await connection.execute(
                f"CREATE DATABASE {name}" + (f" TEMPLATE {template} STRATEGY FILE_COPY" if template else "")
            )
        finally:
            await connection.close()
        return self.dsn.replace("/paddock?", f"/{name}?")

    async def emptied(self, dsn: str) -> bool:
        """Whether the database is again as the template is: same schema, no rows, no bloat, nobody connected."""
        try:
            connection = await asyncpg.connect(dsn, timeout=10)
        except (OSError, asyncpg.PostgresError, TimeoutError):
            return False
        try:
            await connection.execute(LONELY)
            await connection.execute("DROP TABLE IF EXISTS test_clock CASCADE")
            await connection.execute(REAL_CLOCK)
            if await connection.fetchval(BLOATED) or not await self._as_the_template(connection):
                return False
            tables = [row["name"] for row in await connection.fetch(TABLES)]
            await connection.execute(";".join(f"DELETE FROM {table}" for table in tables))
            await connection.execute("INSERT INTO service DEFAULT VALUES")
            return True
        finally:
            await connection.close()

    async def _as_the_template(self, connection: "asyncpg.Connection[asyncpg.Record]") -> bool:
        if self._template is None:
            template = await asyncpg.connect(self.dsn.replace("/paddock?", "/paddock_template?"))
            try:
                await template.execute(REAL_CLOCK)
                self._template = await template.fetchval(UNTOUCHED), await template.fetchval(SHAPE)
            finally:
                await template.close()
        untouched, shape = self._template
        return bool(await connection.fetchval(UNTOUCHED) == untouched or await connection.fetchval(SHAPE) == shape)

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
        await self._connection.execute(REAL_CLOCK)


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


@pytest.fixture
def logging_put_back() -> Iterator[None]:
    """For tests that configure the logs: those of the next test in this process must not notice."""
    root = logging.getLogger()
    level = root.level
    yield
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, log._Handler)]
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture(autouse=True)
def no_mismatch_stays() -> Iterator[None]:
    """Which clusters are not ours a process remembers as long as its runtimes live: those of the last test may live on for a while."""
    yield
    kubernetes = sys.modules.get("paddock.runtimes.kubernetes.installation")
    if kubernetes is not None:
        kubernetes._mismatches.clear()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture
async def dsn(postgres: Server) -> AsyncIterator[str]:
    if postgres.free:
        name, taken = postgres.free.pop()
    else:
        name = f"test_{next(NUMBERS)}"
        taken = await postgres.create_database(name, "paddock_template")
    yield taken
    if await postgres.emptied(taken):
        postgres.free.append((name, taken))
    else:
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
