"""A PostgreSQL over TCP with passwords, a database on it for each test, and stock psql to load dumps with."""

import asyncio
import subprocess
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote

import asyncpg
import pytest

from paddock.db.embedded import wheel_programs
from paddock.dumps.database_settings import PostgresDatabase
from paddock.engines.postgres.session import Connection
from tests.engines.postgres.conftest import PASSWORD, Shop

BIN = wheel_programs()
NUMBERS = count(1)

__all__ = ["PASSWORD", "Connection"]


@pytest.fixture(scope="session")
def dumped_server() -> Iterator[Shop]:
    server = Shop()
    yield server
    server.close()


class Place:
    """A database on the server; `admin` is a superuser in it."""

    def __init__(self, server: Shop, name: str, secret: Path) -> None:
        self.server = server
        self.name = name
        self._secret = secret
        self.dsn = server.dsn.replace("/paddock?", f"/{name}?")

    def settings(self, login: str = "boss", **changes: object) -> PostgresDatabase:
        url = f"postgresql://{quote(login)}@127.0.0.1:{self.server.port}/{self.name}"
        return PostgresDatabase.model_validate(
            {
                "type": "postgres",
                "url": url,
                "password_file": self._secret,
                "ssl": "disable",
                "pg_dump": BIN / "pg_dump",
                **changes,
            }
        )

    async def run(self, program: str, *arguments: str, stdin: bytes = b"") -> bytes:
        """One of PostgreSQL's own programs on this database, as the superuser."""
        return await asyncio.to_thread(self._run, program, *arguments, stdin=stdin)

    def _run(self, program: str, *arguments: str, stdin: bytes) -> bytes:
        environment = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.server.port),
            "PGUSER": "boss",
            "PGDATABASE": self.name,
            "PGPASSWORD": PASSWORD,
            "LC_ALL": "C",
        }
        ended = subprocess.run(
            [BIN / program, *arguments], check=False, input=stdin, capture_output=True, env=environment
        )
        assert ended.returncode == 0, ended.stderr.decode()
        return ended.stdout

    async def load(self, sql: bytes) -> None:
        await self.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", stdin=sql)


@pytest.fixture
async def places(dumped_server: Shop, tmp_path: Path) -> AsyncIterator["Places"]:
    made = Places(dumped_server, tmp_path)
    yield made
    await made.drop()


class Places:
    def __init__(self, server: Shop, folder: Path) -> None:
        self._server = server
        self._secret = folder / "password"
        self._secret.write_text(PASSWORD + "\n")
        self._names: list[str] = []

    async def make(self) -> Place:
        name = f"dumped_{next(NUMBERS)}"
        await self._server.create_database(name)
        self._names.append(name)
        return Place(self._server, name, self._secret)

    async def drop(self) -> None:
        for name in self._names:
            await self._server.drop_database(name)


@pytest.fixture
async def source(places: Places) -> Place:
    return await places.make()


@pytest.fixture
async def target(places: Places) -> Place:
    return await places.make()


@pytest.fixture
async def admin(source: Place) -> AsyncIterator[Connection]:
    connection = await asyncpg.connect(source.dsn)
    yield connection
    await connection.close()
