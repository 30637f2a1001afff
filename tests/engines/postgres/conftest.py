"""A PostgreSQL that is asked over TCP with passwords, and a login there that only reads."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest

from paddock.db.embedded import embedded_postgres
from paddock.engines.postgres.engine import PostgresEngine
from paddock.engines.settings import PostgresSettings
from tests.conftest import Server
from tests.ports import free_ports

PASSWORD = "correct horse battery staple"
SETUP = f"""
CREATE ROLE reader LOGIN PASSWORD '{PASSWORD}';
CREATE ROLE boss LOGIN SUPERUSER PASSWORD '{PASSWORD}';
CREATE ROLE climber LOGIN PASSWORD '{PASSWORD}';
GRANT boss TO climber;
CREATE ROLE filer LOGIN PASSWORD '{PASSWORD}';
GRANT pg_read_server_files TO filer;
CREATE ROLE runner LOGIN PASSWORD '{PASSWORD}';
GRANT pg_execute_server_program TO runner;
CREATE ROLE replicator LOGIN REPLICATION PASSWORD '{PASSWORD}';
"""


class Shop(Server):
    """`dsn` is the superuser's, by socket."""

    def __init__(self) -> None:
        [self.port] = free_ports(1)
        self.pid = 0
        super().__init__()

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        settings = {
            "fsync": "off",
            "full_page_writes": "off",
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
        }
        pg_bin = os.environ.get("PADDOCK_TEST_PG_BIN")
        async with embedded_postgres(
            self.folder / "data", pg_bin=Path(pg_bin) if pg_bin else None, settings=settings
        ) as server:
            self.dsn, self.pid = server.dsn, server.pid
            connection = await asyncpg.connect(self.dsn)
            await connection.execute(SETUP)
            await connection.close()
            self._ready.set()
            await self._stop.wait()


@pytest.fixture(scope="session")
def shop() -> Iterator[Shop]:
    server = Shop()
    yield server
    server.close()


@pytest.fixture
async def admin(shop: Shop) -> AsyncIterator["asyncpg.Connection[asyncpg.Record]"]:
    """A superuser in a database that is empty but for what the test makes; `reader` may read all of it."""
    owner = await asyncpg.connect(shop.dsn)
    await owner.execute("DROP SCHEMA public CASCADE")
    await owner.execute("CREATE SCHEMA public; GRANT USAGE ON SCHEMA public TO PUBLIC")
    await owner.execute("ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO PUBLIC")
    await owner.execute("SET timezone = 'UTC'; SET intervalstyle = 'iso_8601'; SET extra_float_digits = 3")
    yield owner
    await owner.close()


def settings_for(shop: Shop, tmp_path: Path, login: str = "reader", **changes: object) -> PostgresSettings:
    secret = tmp_path / "password"
    if not secret.exists():
        secret.write_text(PASSWORD + "\n")
    url = f"postgresql://{quote(login)}@127.0.0.1:{shop.port}/paddock"
    return PostgresSettings.model_validate({"url": url, "password_file": secret, **changes})


@pytest.fixture
def engine(shop: Shop, admin: object, tmp_path: Path) -> PostgresEngine:
    return PostgresEngine("shop", settings_for(shop, tmp_path))
