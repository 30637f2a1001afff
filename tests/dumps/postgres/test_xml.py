"""XML and ICU, which the PostgreSQL that comes with Paddock is built without: on Debian's, dumped by its own pg_dump."""

import asyncio
import csv
import io
import json
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import asyncpg
import pytest

from paddock.db.embedded import embedded_postgres
from paddock.dumps.database_settings import PostgresDatabase
from paddock.dumps.verifying.checking import verify
from tests.dumps.frozen import ended
from tests.dumps.postgres.conftest import PASSWORD, Connection
from tests.dumps.postgres.dumping import dumped
from tests.ports import free_ports
from tests.processes.running import data_folder

# The newest that is installed.
DEBIAN = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
pytestmark = pytest.mark.skipif(not DEBIAN, reason="needs Debian's PostgreSQL (apt-get install postgresql)")

VALUES = [
    "<a/>",
    '<a b="it\'s &quot;quoted&quot;">one\nline &amp; another\\.\n</a>',
    'text <b>with</b> some, "content" and a \\ in it',
    '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY e "x">]><a>&e;</a>',
    "<ä>ö€😀</ä>",
    "",
    None,
]


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[PostgresDatabase]:
    [port] = free_ports(1)
    given = {"listen_addresses": "127.0.0.1", "port": str(port), "fsync": "off"}
    with data_folder() as data:
        async with embedded_postgres(data, pg_bin=DEBIAN[-1].parent, settings=given) as server:
            connection = await asyncpg.connect(server.dsn)
            await connection.execute(f"CREATE ROLE boss LOGIN SUPERUSER PASSWORD '{PASSWORD}'")
            await connection.execute("CREATE DATABASE restored")
            await connection.close()
            (tmp_path / "password").write_text(PASSWORD)
            yield PostgresDatabase.model_validate(
                {
                    "type": "postgres",
                    "url": f"postgresql://boss@127.0.0.1:{port}/paddock",
                    "password_file": tmp_path / "password",
                    "ssl": "disable",
                    "pg_dump": DEBIAN[-1].with_name("pg_dump"),
                }
            )


async def connected(settings: PostgresDatabase, database: str) -> Connection:
    return await asyncpg.connect(settings.url.replace("/paddock", f"/{database}"), password=PASSWORD)


def load(settings: PostgresDatabase, sql: bytes) -> None:
    address = settings.url.replace("/paddock", "/restored")
    command = [str(DEBIAN[-1].with_name("psql")), "-X", "-q", "-v", "ON_ERROR_STOP=1", address]
    loaded = subprocess.run(
        command, input=sql, capture_output=True, check=False, env={"PGPASSWORD": PASSWORD, "LC_ALL": "C"}
    )
    assert loaded.returncode == 0, loaded.stderr.decode()


async def stored(connection: Connection) -> list[str | None]:
    """As the server writes it for any client, pg_dump among them: a declaration that says nothing is left out."""
    written = "CASE WHEN value IS NOT NULL THEN format('%s', value) END"
    return [row[0] for row in await connection.fetch(f"SELECT {written} FROM papers ORDER BY id")]


async def test_xml_comes_back_as_it_was(settings: PostgresDatabase) -> None:
    source = await connected(settings, "paddock")
    await source.execute("CREATE TABLE papers (id int PRIMARY KEY, value xml)")
    for id, value in enumerate(VALUES):
        kind = "DOCUMENT" if value is not None and "DOCTYPE" in value else "CONTENT"
        await source.execute(f"INSERT INTO papers VALUES ($1, XMLPARSE({kind} $2::text))", id, value)
    there = await stored(source)
    # A login may say otherwise, and then content is refused: the dump's own setting has to stand above it.
    await source.execute("ALTER ROLE boss SET xmloption = 'document'")

    sql = await dumped(settings)
    rows = json.loads("[" + (await dumped(settings, "json")).data.decode() + "]")
    lines = list(csv.reader(io.StringIO((await dumped(settings, "csv")).data.decode(), newline="")))

    load(settings, sql.data)
    target = await connected(settings, "restored")
    assert await stored(target) == there
    assert [row["value"] for row in rows] == there
    assert [cells[1] for cells in lines] == [value or "" for value in there]
    assert re.search(rb"^SET xmloption = content;$", sql.data, re.MULTILINE)
    await source.close()
    await target.close()


async def test_what_the_scratch_server_is_built_without_is_counted_in_the_file(
    settings: PostgresDatabase, tmp_path: Path
) -> None:
    source = await connected(settings, "paddock")
    await source.execute(
        """
        CREATE TABLE papers (value xml);
        INSERT INTO papers VALUES ('<a/>'), ('<b/>');
        CREATE COLLATION german (provider = icu, locale = 'de-u-co-phonebk');
        CREATE TABLE words (word text COLLATE german, other text COLLATE "de-x-icu");
        INSERT INTO words VALUES ('a', 'b');
        CREATE TABLE empty (word text COLLATE german);
        CREATE TABLE plain (n int);
        INSERT INTO plain VALUES (1), (2), (3);
        """
    )
    await source.close()
    rows = {"papers": 2, "words": 1, "empty": 0, "plain": 3}
    file, archive = tmp_path / "shop.sql", tmp_path / "shop.dump"
    file.write_bytes(ended((await dumped(settings)).data, rows))
    archive.write_bytes((await dumped(settings, "custom")).data)

    for path in (file, archive):
        found = await asyncio.to_thread(verify, path, lambda done, total: None)
        assert found.ok, found
        assert {table.table: table.rows for table in found.tables} | {"empty": 0} == rows
        assert "--pg-bin" in found.notes[0]
    file.write_bytes(ended((await dumped(settings)).data, {**rows, "words": 2}))
    assert not (await asyncio.to_thread(verify, file, lambda done, total: None)).ok
