"""A dump is the database at the time it states, whatever happens meanwhile."""

import asyncio
import csv
import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, get_args

import asyncpg
import pytest

from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.postgres import freezing
from paddock.dumps.postgres import source as postgres_source
from paddock.dumps.postgres.relations import Relation
from paddock.dumps.postgres.source import PostgresSource
from tests.dumps.postgres.conftest import Connection, Place
from tests.dumps.postgres.dumping import DRAFT, dumped, read

TABLES = ("a", "b", "c")
FORMATS: list[Format] = [format for format in get_args(Format) if format != "sqlite"]


class Writer:
    """Every commit changes every table: `done[n]` is when the server knew that the n-th was committed."""

    def __init__(self, place: Place) -> None:
        self.done: list[datetime] = []
        self._place = place
        self._committed = asyncio.Event()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[None]:
        connection = await asyncpg.connect(self._place.dsn)
        writing = asyncio.create_task(self._write(connection))
        try:
            yield
        finally:
            writing.cancel()
            await asyncio.wait([writing])
            await connection.close()

    async def until(self, commits: int) -> None:
        while len(self.done) < commits:
            self._committed.clear()
            await self._committed.wait()

    async def _write(self, connection: Connection) -> None:
        while True:
            number = len(self.done) + 1
            changes = "".join(
                f"UPDATE {table} SET number = {number}; INSERT INTO {table} VALUES ({number}, {number});"
                f"DELETE FROM {table} WHERE made = {number - 3};"
                for table in TABLES
            )
            await connection.execute(f"BEGIN; {changes} COMMIT")
            self.done.append(await connection.fetchval("SELECT clock_timestamp()"))
            self._committed.set()


async def numbers(place: Place, whole: Any, format: Format, target: Place) -> list[tuple[str, int, int]]:
    if format in ("sql", "custom"):
        if format == "sql":
            await target.load(whole.data)
        else:
            await target.run("pg_restore", "--dbname", target.name, stdin=whole.data)
        loaded = await asyncpg.connect(target.dsn)
        try:
            rows = await loaded.fetch(
                " UNION ALL ".join(f"SELECT '{table}', made, number FROM {table}" for table in TABLES)
            )
            return sorted(tuple(row) for row in rows)
        finally:
            await loaded.close()
    found = []
    for table, data in whole.tables.items():
        if format == "json":
            found += [(table, row["made"], row["number"]) for row in json.loads(b"[" + data + b"]")]
        else:
            found += [(table, int(made), int(number)) for made, number, *_ in csv.reader(io.StringIO(data.decode()))]
    return sorted(found)


@pytest.mark.parametrize("format", FORMATS)
async def test_while_every_table_changes(
    admin: Connection, source: Place, target: Place, format: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table in TABLES:
        await admin.execute(f"CREATE TABLE {table} (made int, number int, filler text)")
        await admin.execute(f"INSERT INTO {table} SELECT -10 - n, 0, repeat('x', 900) FROM generate_series(1, 500) n")
    writer, freeze, held = Writer(source), freezing.freeze, list[datetime]()

    async def noted(*args: Any) -> Any:
        snapshot = await freeze(*args)
        held.append(await admin.fetchval("SELECT clock_timestamp()"))
        return snapshot

    monkeypatch.setattr(postgres_source, "freeze", noted)
    async with writer.writing():
        await writer.until(5)
        started = await admin.fetchval("SELECT clock_timestamp()")
        frozen = await PostgresSource(source.settings()).open(format, DumpOptions(), DRAFT)
        try:
            await writer.until(len(writer.done) + 3)
            whole = await read(frozen, format)
        finally:
            await frozen.close()
        await writer.until(len(writer.done) + 2)

    found = await numbers(source, whole, format, target)

    number = max(row[2] for row in found)
    state = [(table, made, number) for table in TABLES for made in (*range(-510, -10), number - 2, number - 1, number)]
    assert found == sorted(state)
    # Everything that was committed by then is in it; what was begun when the snapshot was held is not.
    assert whole.point_in_time is not None
    assert sum(done <= whole.point_in_time for done in writer.done) <= number
    assert number <= sum(done <= held[0] for done in writer.done) + 1
    assert started <= whole.point_in_time <= held[0]


async def test_a_table_emptied_while_its_lock_was_awaited_is_not_empty_by_mistake(
    admin: Connection, source: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRUNCATE shows an older snapshot an empty table: the lock has to come first, then the snapshot."""
    await admin.execute("CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE u AS SELECT 1 AS a")
    lock = freezing._lock

    async def late(connection: Connection, tables: list[Relation]) -> None:
        await admin.execute("BEGIN; TRUNCATE t; INSERT INTO t VALUES (2); INSERT INTO u VALUES (2); COMMIT")
        await lock(connection, tables)

    monkeypatch.setattr(freezing, "_lock", late)

    whole = await dumped(source.settings(), "csv")

    assert whole.tables == {"t": b"2\r\n", "u": b"1\r\n2\r\n"}


async def test_tables_that_come_and_go_while_it_locks(
    admin: Connection, source: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    await admin.execute("CREATE TABLE t AS SELECT 1 AS a; CREATE TABLE going AS SELECT 1 AS a")
    lock = freezing._lock
    changes = ["DROP TABLE going", "CREATE TABLE coming AS SELECT 3 AS a"]

    async def late(connection: Connection, tables: list[Relation]) -> None:
        if changes:
            await admin.execute(changes.pop(0))
        await lock(connection, tables)

    monkeypatch.setattr(freezing, "_lock", late)

    assert (await dumped(source.settings(), "csv")).tables == {"coming": b"3\r\n", "t": b"1\r\n"}


@pytest.mark.parametrize("format", FORMATS)
async def test_time_limits_of_the_login_end_nothing(admin: Connection, source: Place, format: Format) -> None:
    await admin.execute(
        "CREATE TABLE t AS SELECT i, repeat('x', 1000) AS a FROM generate_series(1, 20000) i;"
        "CREATE VIEW login AS SELECT rolconfig FROM pg_roles WHERE rolname = 'reader'; GRANT SELECT ON t TO reader"
    )
    limits = ("statement_timeout", "idle_in_transaction_session_timeout", "transaction_timeout", "lock_timeout")
    for limit in limits:
        await admin.execute(f"ALTER ROLE reader IN DATABASE {source.name} SET {limit} = '600ms'")
    await admin.execute(f"ALTER ROLE reader IN DATABASE {source.name} SET row_security = on")

    frozen = await PostgresSource(source.settings("reader")).open(format, DumpOptions(tables=["t"]), DRAFT)
    try:
        # Longer than any of them, with a statement under way that waits for its reader.
        await admin.execute("SELECT pg_sleep(0.8)")
        whole = await read(frozen, format)
    finally:
        await frozen.close()

    assert whole.counts == {"t": 20000}
