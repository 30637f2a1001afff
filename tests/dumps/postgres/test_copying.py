"""COPY on the connection of the snapshot: in order, as it is asked for, and nothing left behind."""

import asyncio
from typing import Any

import pytest

from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.postgres.source import PostgresSource
from paddock.dumps.source import Frozen, Table
from paddock.jobs.errors import TransientResourceError
from tests.dumps.postgres.conftest import Connection, Place
from tests.dumps.postgres.dumping import DRAFT, dumped
from tests.dumps.postgres.test_pg_dump import nobody_connected

pytestmark = pytest.mark.parametrize("format", ["json", "csv"])


async def opened(place: Place, admin: Connection, format: Format) -> Frozen:
    await admin.execute("CREATE TABLE big AS SELECT i, repeat('x', 1000) AS a FROM generate_series(1, 40000) i")
    await admin.execute("CREATE TABLE small AS SELECT 1 AS a")
    return await PostgresSource(place.settings()).open(format, DumpOptions(), DRAFT)


async def rest(frozen: Frozen, table: Table, format: Format) -> None:
    for place in range(1, 1000):
        await frozen.rows(table, format, place)


async def test_a_connection_that_the_server_ends(admin: Connection, source: Place, format: Format) -> None:
    frozen = await opened(source, admin, format)
    table = frozen.tables[0]
    await frozen.rows(table, format, None)
    await admin.execute(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND application_name LIKE 'paddock dump%'"
    )

    with pytest.raises(TransientResourceError) as lost:
        await rest(frozen, table, format)

    assert lost.value.code == "snapshot_connection_lost"
    await frozen.close()


async def test_one_that_is_left_in_the_middle_leaves_nothing_behind(
    admin: Connection, source: Place, format: Format
) -> None:
    frozen = await opened(source, admin, format)
    await frozen.rows(frozen.tables[0], format, None)

    await frozen.close()

    await nobody_connected(admin)


async def test_a_caller_that_is_cancelled_leaves_nothing_behind(
    admin: Connection, source: Place, format: Format
) -> None:
    await admin.execute("CREATE TABLE t (a int)")
    dumping = asyncio.create_task(dumped(source.settings(), format))
    async with admin.transaction():
        await admin.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        while not await admin.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
            await admin.execute("SELECT pg_sleep(0.01)")
        dumping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await dumping

        await nobody_connected(admin)


async def test_only_the_next_place_can_be_had(admin: Connection, source: Place, format: Format) -> None:
    frozen = await opened(source, admin, format)
    big, small = frozen.tables
    await frozen.rows(big, format, None)

    for table, place in ((big, None), (big, 0), (big, 2), (small, None)):
        with pytest.raises(TransientResourceError) as lost:
            await frozen.rows(table, format, place)
        assert lost.value.code == "snapshot_connection_lost"
    assert (await frozen.rows(big, format, 1)).next == 2
    await frozen.close()


async def test_partitions_are_their_table_s_unless_one_is_left_out(
    admin: Connection, source: Place, format: Format
) -> None:
    await admin.execute(
        "CREATE TABLE p (a int) PARTITION BY LIST (a); CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1);"
        "CREATE TABLE p2 PARTITION OF p FOR VALUES IN (2) PARTITION BY LIST (a);"
        "CREATE TABLE p2a PARTITION OF p2 FOR VALUES IN (2); INSERT INTO p VALUES (1), (2), (2)"
    )

    async def counts(**options: Any) -> dict[str, int]:
        frozen = await PostgresSource(source.settings()).open(format, DumpOptions(**options), DRAFT)
        names = [table.name for table in frozen.tables]
        await frozen.close()
        whole = await dumped(source.settings(), format, **options)
        return {name: whole.counts[name] for name in names}

    assert await counts() == {"p": 3}
    assert await counts(tables=["p"]) == {"p": 3}
    assert await counts(tables=["p2"]) == {"p2": 2}
    assert await counts(exclude_tables=["p1"]) == {"p2": 2}
    assert await counts(exclude_tables=["p2a"]) == {"p1": 1}
    assert await counts(exclude_tables=["p"]) == {}
    assert (await dumped(source.settings(), tables=["p"])).counts == {"p1": 1, "p2a": 2}
    assert (await dumped(source.settings(), exclude_tables=["p2"])).counts == {"p1": 1}
