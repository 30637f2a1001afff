"""PostgreSQL dumped by a whole Paddock: jobs, a worker that dies, a cancel. The server is one of its own."""

import asyncio
import contextlib
import csv
import io
import json
import zipfile
from collections.abc import Iterator
from typing import Any

import asyncpg
import psutil
import pytest

from tests.dumps.postgres.conftest import Connection, Places
from tests.dumps.postgres.conftest import Place as Books
from tests.dumps.postgres.gate import Gate
from tests.dumps.postgres.test_pg_dump import nobody_connected
from tests.dumps.whole import Place, place
from tests.engines.postgres.conftest import Shop
from tests.processes.running import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 200_000
MADE = f"""
CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric, note bytea);
INSERT INTO orders SELECT i, 'it''s "' || i % 1000 || '"', i / 7.0, decode(md5(i::text), 'hex')
    FROM generate_series(1, {ROWS}) i;
CREATE TABLE tags (name text UNIQUE);
INSERT INTO tags VALUES ('new'), (''), (NULL);
CREATE VIEW customers AS SELECT customer, sum(total) FROM orders GROUP BY 1
"""
CONTENT = "SELECT md5(string_agg(o::text, '|' ORDER BY id)) FROM orders o"


@pytest.fixture(scope="module")
def books(dumped_server: Shop, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Books]:
    made = Places(dumped_server, tmp_path_factory.mktemp("books"))
    source = asyncio.run(made.make())
    asyncio.run(source.load(MADE.encode()))
    yield source
    asyncio.run(made.drop())


@pytest.fixture(scope="module")
def gate(dumped_server: Shop) -> Iterator[Gate]:
    gate = Gate(dumped_server.port)
    yield gate
    gate.close()


@pytest.fixture(scope="module")
def paddock(books: Books, gate: Gate) -> Iterator[Place]:
    settings = books.settings().model_dump(mode="json", exclude_defaults=True)
    settings["url"] = settings["url"].replace(f":{books.server.port}/", f":{gate.port}/")
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    # A dump of PostgreSQL is one turn: a worker that is late on a busy machine would begin it anew.
    longer = {"PADDOCK_LEASE_SECONDS": "5"}
    with place(rows=1, environment=longer, more="\n".join(["[dumps.databases.books]", *lines])) as running:
        yield running


@pytest.fixture
async def admin(books: Books) -> Any:
    connection = await asyncpg.connect(books.dsn)
    yield connection
    await connection.close()


async def _content(where: Books) -> str:
    connection = await asyncpg.connect(where.dsn)
    try:
        return str(await connection.fetchval(CONTENT))
    finally:
        await connection.close()


async def _whole(paddock: Place, id: str, *, restarts: int = 0) -> bytes:
    status = await asyncio.to_thread(paddock.ended, id)
    assert status["status"] == "completed", json.dumps(paddock.job(id), indent=1)
    assert status["tables"] == {"orders": ROWS, "tags": 3}
    assert status["restarts"] == restarts
    return await asyncio.to_thread(paddock.download, id)


async def test_each_format_is_made_by_a_job_and_reads_back(
    paddock: Place, books: Books, places: Places, admin: Connection
) -> None:
    ids = {format: paddock.start("books", format) for format in ("sql", "custom", "json", "csv")}
    made = {format: await _whole(paddock, id) for format, id in ids.items()}
    stored = [dict(row) for row in await admin.fetch("SELECT id, customer, total::text, note FROM orders ORDER BY id")]

    from_sql, from_custom = await places.make(), await places.make()
    await from_sql.load(made["sql"])
    await from_custom.run("pg_restore", "--no-owner", "-d", from_custom.name, stdin=made["custom"])
    assert {await _content(where) for where in (books, from_sql, from_custom)} == {await _content(books)}

    document = json.loads(made["json"], parse_float=str, parse_int=str)
    assert document["tags"] == [{"name": "new"}, {"name": ""}, {"name": None}]
    assert document["orders"] == [{**row, "id": str(row["id"]), "note": {"$hex": row["note"].hex()}} for row in stored]
    with zipfile.ZipFile(io.BytesIO(made["csv"])) as archive:
        lines = list(csv.reader(io.StringIO(archive.read("orders.csv").decode(), newline="")))
        assert lines[0] == ["id", "customer", "total", "note"]
        assert lines[1:] == [
            [str(row["id"]), row["customer"], row["total"], "\\x" + row["note"].hex()] for row in stored
        ]
        assert archive.read("tags.csv") == b'name\r\n"new"\r\n""\r\n\\N\r\n'
    await nobody_connected(admin)


@pytest.mark.parametrize("format", ["sql", "csv"])
async def test_after_a_kill_it_begins_anew_and_is_whole(
    paddock: Place, books: Books, gate: Gate, places: Places, admin: Connection, format: str
) -> None:
    with gate.shut():
        id = paddock.start("books", format)
        await asyncio.to_thread(_in_the_middle, paddock, id)
        paddock.up.child("worker").kill()

    data = await _whole(paddock, id, restarts=1)

    if format == "sql":
        target = await places.make()
        await target.load(data)
        assert await _content(target) == await _content(books)
    else:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            assert archive.testzip() is None
            assert archive.read("orders.csv").count(b"\r\n") == ROWS + 1
    await nobody_connected(admin)


@pytest.mark.parametrize("format", ["sql", "json"])
async def test_one_that_is_cancelled_leaves_no_connection(
    paddock: Place, gate: Gate, admin: Connection, format: str
) -> None:
    objects = paddock.objects()
    with gate.shut():
        id = paddock.start("books", format)
        await asyncio.to_thread(_in_the_middle, paddock, id)
        paddock.client.request("DELETE", f"/export/jobs/{id}")

        assert (await asyncio.to_thread(paddock.ended, id))["status"] == "cancelled"
    await nobody_connected(admin)
    wait_for("pg_dump is gone", lambda: not any("pg_dump" in name for name in _processes(paddock)))
    wait_for("its draft is gone", lambda: paddock.objects() == objects)


def _in_the_middle(paddock: Place, id: str) -> None:
    def look() -> bool:
        found = paddock.status(id)
        assert found is None or found["status"] in ("pending", "in_progress"), "the gate is open"
        return found is not None and found["bytesWritten"] > 1 << 20

    wait_for(f"dump {id} is at work", look)


def _processes(paddock: Place) -> Iterator[str]:
    for child in paddock.up.children():
        with contextlib.suppress(psutil.NoSuchProcess):
            yield child.name()
