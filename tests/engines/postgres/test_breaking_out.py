"""A text that is not exactly one reading query changes nothing, and neither does one that only looks like it.

The login may write the table: it is the transaction that must hold, not the grants.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from paddock.engines.engine import Query, QueryRefused
from paddock.engines.postgres.engine import PostgresEngine
from paddock.jobs.errors import PermanentRunnerError
from tests.engines.postgres.conftest import Shop, settings_for
from tests.engines.postgres.reading import read, values

STATEMENTS = [
    "SELECT 1) TO PROGRAM 'touch {marker}' --",
    "SELECT 1\n) TO PROGRAM 'touch {marker}'; --",
    "SELECT 1) TO '{marker}' --",
    "SELECT 1) TO STDOUT; DELETE FROM t; COPY (SELECT 1",
    "SELECT 1; DELETE FROM t",
    "SELECT 1; SELECT 2",
    "SELECT 1;;SELECT 2;",
    "SELECT 1) AS a, (SELECT 2",
    "SELECT 1) AS q; DELETE FROM t; --",
    "SELECT 1 /*",
    "SELECT 1 */ --",
    "SELECT 1 --\n) TO STDOUT; DELETE FROM t; --",
    "SELECT 'a",
    "SELECT $$a",
    'SELECT 1 AS "a',
    "WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone",
    "SELECT * FROM (WITH gone AS (DELETE FROM t RETURNING *) SELECT * FROM gone) q",
    "DELETE FROM t RETURNING *",
    "INSERT INTO t VALUES (2) RETURNING *",
    "UPDATE t SET n = 3 RETURNING *",
    "MERGE INTO t USING (SELECT 1 AS n) s ON true WHEN MATCHED THEN DELETE",
    "TRUNCATE t",
    "CALL erase()",
    "DO $$BEGIN DELETE FROM t; END$$",
    "SELECT * INTO u FROM t",
    "CREATE TABLE u AS SELECT 1",
    "CREATE TEMP TABLE u AS SELECT 1",
    "COPY t TO STDOUT",
    "COPY (SELECT 1) TO PROGRAM 'touch {marker}'",
    "SELECT * FROM t FOR UPDATE",
    "EXPLAIN SELECT 1",
    "EXPLAIN ANALYZE DELETE FROM t",
    "SHOW server_version",
    "SET ROLE boss",
    "SET TRANSACTION READ WRITE",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "COMMIT; DELETE FROM t",
    "PREPARE p AS DELETE FROM t",
    "DECLARE c CURSOR FOR SELECT 1",
    "LOCK TABLE t",
    "LISTEN t",
    "NOTIFY t",
    "VACUUM",
    "LOAD 'x'",
    "SELECT FROM t",
    "SELECT $1::int",
    "",
    " ;",
    "-- nothing",
    "SELECT 1\0) TO PROGRAM 'touch {marker}' --",
    "SELECT '\ud800'",
]
# These are queries; it is while they run that they fail.
CALLS = [
    "SELECT set_config('transaction_read_only', 'off', true), erase_all()",
    "SELECT set_config('transaction_read_only', 'off', false)",
    "SELECT set_config('default_transaction_read_only', 'off', false), erase_all()",
    "SELECT erase_all()",
    "SELECT sly()",
    "SELECT n FROM t WHERE sly() > 0",
    "SELECT set_config('role', 'boss', false)",
    "SELECT set_config('session_authorization', 'boss', false)",
    "SELECT nextval('s')",
    "SELECT setval('s', 100)",
    "SELECT pg_read_file('/etc/passwd')",
    "SELECT pg_read_binary_file('/etc/passwd')",
    "SELECT pg_ls_dir('/')",
    "SELECT pg_stat_file('/etc/passwd')",
    "SELECT lo_import('/etc/passwd')",
    "SELECT lo_export(1, '{marker}')",
    "SELECT pg_create_physical_replication_slot('x')",
    "SELECT pg_reload_conf()",
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename <> 'reader'",
    "SELECT query_to_xml('DELETE FROM t', true, true, '')",
    "SELECT table_name FROM information_schema.tables WHERE 1 = 1 / (SELECT 0)",
    "SELECT * FROM secret",
]


@pytest.fixture
async def table(admin: Any) -> AsyncIterator[Any]:
    await admin.execute("""
        CREATE TABLE t (n int);
        INSERT INTO t VALUES (1);
        CREATE TABLE secret (n int);
        REVOKE ALL ON secret FROM PUBLIC;
        CREATE SEQUENCE s;
        GRANT ALL ON t, s TO reader;
        GRANT CREATE ON SCHEMA public TO reader;
        CREATE PROCEDURE erase() LANGUAGE sql AS 'DELETE FROM t';
        CREATE FUNCTION erase_all() RETURNS int LANGUAGE plpgsql AS 'BEGIN DELETE FROM t; RETURN 1; END';
        CREATE FUNCTION sly() RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
            BEGIN
                PERFORM set_config('transaction_read_only', 'off', true);
                PERFORM erase_all();
                RETURN 1;
            END $$;
    """)
    yield admin
    assert await admin.fetch("SELECT n FROM t") == [(1,)]
    assert await admin.fetchval("SELECT is_called FROM s") is False
    assert await admin.fetchval("SELECT to_regclass('u')") is None


@pytest.fixture
def marker(shop: Shop) -> Path:
    """Where the server itself could write."""
    return shop.folder / "data" / "pg" / "marker"


async def _refused(attempt: Awaitable[object], kind: type[PermanentRunnerError]) -> bool:
    try:
        await attempt
    except kind as problem:
        return bool(problem.message)
    return False


async def test_a_text_that_is_not_one_query_is_refused(engine: PostgresEngine, table: Any, marker: Path) -> None:
    """In one test, because each needs only milliseconds; the list holds those that came through."""
    passed: list[str] = []
    for text in STATEMENTS:
        sql = text.format(marker=marker)
        described = await _refused(engine.describe(Query(sql)), QueryRefused)
        ran = await _refused(read(engine, sql), QueryRefused)
        untouched = await table.fetchval("SELECT sum(n) FROM t") == 1 and not marker.exists()
        passed += [] if described and ran and untouched else [text]
    assert passed == []
    assert await _refused(engine.preview(Query(STATEMENTS[0]), 5), QueryRefused)


async def test_a_query_that_tries_to_write_fails(engine: PostgresEngine, table: Any, marker: Path) -> None:
    passed: list[str] = []
    for text in CALLS:
        ran = await _refused(read(engine, text.format(marker=marker)), PermanentRunnerError)
        untouched = await table.fetchval("SELECT sum(n) FROM t") == 1 and not marker.exists()
        passed += [] if ran and untouched else [text]
    assert passed == []


async def test_a_large_object_is_not_kept(engine: PostgresEngine, table: Any) -> None:
    """Before version 16 a read-only transaction lets it be made."""
    await _refused(read(engine, "SELECT lo_from_bytea(4242, 'x')"), PermanentRunnerError)
    assert await table.fetchval("SELECT count(*) FROM pg_largeobject_metadata") == 0


async def test_a_describe_runs_nothing(engine: PostgresEngine, table: object) -> None:
    assert len((await engine.describe(Query("SELECT pg_sleep(3600), erase_all()"))).columns) == 2


async def test_a_querys_notification_is_never_delivered(engine: PostgresEngine, table: Any) -> None:
    heard: list[str] = []
    await table.add_listener("news", lambda *about: heard.append(about[-1]))
    await read(engine, "SELECT pg_notify('news', 'hello')")
    await table.execute("NOTIFY news, 'end'")
    await table.fetchval("SELECT 1")
    assert heard == ["end"]


@pytest.mark.parametrize("first", ["", "set_config('statement_timeout', '0', true), "])
async def test_a_query_ends_at_its_time_limit(shop: Shop, table: object, tmp_path: Path, first: str) -> None:
    engine = PostgresEngine("shop", settings_for(shop, tmp_path, statement_timeout_seconds=0.2))
    with pytest.raises(PermanentRunnerError) as found:
        await read(engine, f"SELECT {first}pg_sleep(3600)")
    assert found.value.code == "query_timeout"


async def test_a_query_does_not_wait_for_a_lock_forever(shop: Shop, table: Any, tmp_path: Path) -> None:
    engine = PostgresEngine("shop", settings_for(shop, tmp_path, lock_timeout_seconds=0.2))
    async with table.transaction():
        await table.execute("LOCK TABLE t")
        with pytest.raises(Exception, match="lock timeout") as found:
            await read(engine, "SELECT * FROM t")
    assert getattr(found.value, "code", None) == "lock_timeout"


@pytest.mark.parametrize("login", ["boss", "climber", "filer", "runner", "replicator"])
async def test_a_login_that_could_leave_the_database_is_refused(
    shop: Shop, table: object, tmp_path: Path, login: str
) -> None:
    engine = PostgresEngine("shop", settings_for(shop, tmp_path, login))
    for refused in (engine.describe(Query("SELECT 1")), read(engine, "SELECT 1"), engine.catalogs(Query(""))):
        with pytest.raises(PermanentRunnerError) as found:
            await refused
        assert found.value.code == "login_too_powerful"
        assert "GRANT SELECT" in (found.value.hint or "")
    assert [finding.ok for finding in await engine.check(Query(""))] == [False]


async def test_row_security_does_not_shorten_a_result_silently(shop: Shop, table: Any, tmp_path: Path) -> None:
    await table.execute("ALTER TABLE t ENABLE ROW LEVEL SECURITY")
    with pytest.raises(QueryRefused) as found:
        await read(PostgresEngine("shop", settings_for(shop, tmp_path)), "SELECT * FROM t")
    assert found.value.code == "row_security"

    chosen = PostgresEngine("shop", settings_for(shop, tmp_path, row_security=True))
    assert await values(chosen, "SELECT n FROM t") == []


async def test_where_a_text_is_wrong_is_told(engine: PostgresEngine, table: object) -> None:
    with pytest.raises(QueryRefused) as found:
        await engine.describe(Query("SELECT n,\n       nothing FROM t"))
    assert (found.value.line, found.value.column) == (2, 8)
    with pytest.raises(QueryRefused) as denied:
        await engine.describe(Query("SELECT * FROM secret"))
    assert denied.value.code == "access_denied"


async def test_a_backend_is_gone_once_its_reader_left(engine: PostgresEngine, table: Any) -> None:
    sql = "SELECT n, repeat('x', 1000) FROM generate_series(1, 10000000) AS n"
    async with engine.open(Query(sql, job="left")) as stream:
        async for _ in stream.batches():
            break
    await _gone(table)


async def test_a_query_that_sends_nothing_yet_is_cancelled_too(engine: PostgresEngine, table: Any) -> None:
    async with engine.open(Query("SELECT pg_sleep(3600)", job="left")):
        await _until(table, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", 1)
    await _gone(table)


async def test_a_query_is_cancelled_from_another_process_by_its_handle(engine: PostgresEngine, table: Any) -> None:
    handles: list[dict[str, Any]] = []

    async def started(handle: dict[str, Any]) -> None:
        handles.append(handle)

    async def run() -> None:
        async with engine.open(Query("SELECT pg_sleep(3600)", job="left"), started) as stream:
            async for _ in stream.batches():
                pass

    running = asyncio.create_task(run())
    await _until(table, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", 1)
    (handle,) = handles
    await engine.cancel({**handle, "xact_start": "2020-01-01 00:00:00+00"})
    await _until(table, "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'", 1)

    await engine.cancel(handle)
    with pytest.raises(Exception, match="terminat") as found:
        await running
    assert getattr(found.value, "code", None) == "engine_unavailable"
    await engine.cancel(handle)
    await _gone(table)


async def _gone(table: "asyncpg.Connection[asyncpg.Record]") -> None:
    await _until(table, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'paddock export left'", 0)


async def _until(table: "asyncpg.Connection[asyncpg.Record]", sql: str, wanted: int) -> None:
    async with asyncio.timeout(60):
        while await table.fetchval(sql) != wanted:
            await table.fetchval("SELECT pg_sleep(0.02)")
