"""One query, one snapshot, its own order, nothing lost and nothing in memory for longer than needed."""

import asyncio
import os
import random
from datetime import date
from pathlib import Path
from typing import Any

import asyncpg
import psutil
import pyarrow as pa
import pytest

from paddock.engines.engine import Query, QueryRefused
from paddock.engines.postgres.engine import BLOCK_BYTES, PostgresEngine, PostgresStream, copying
from paddock.engines.postgres.proving import Proven
from paddock.engines.postgres.types import PostgresColumn
from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from tests.engines.postgres.conftest import PASSWORD, Shop, settings_for
from tests.engines.postgres.reading import read, values


async def test_a_query_is_described_before_it_runs(engine: PostgresEngine) -> None:
    described = await engine.describe(Query("SELECT 1 AS id, 'x'::text AS name, 1.5::numeric(10,2) AS price"))
    assert [(c.name, c.type, c.native) for c in described.columns] == [
        ("id", pa.int32(), "integer"),
        ("name", pa.string(), "text"),
        ("price", pa.decimal128(10, 2), "numeric(10,2)"),
    ]


@pytest.mark.parametrize("sql", ["VALUES (1), (2)", "TABLE t", "WITH w AS (SELECT 1) SELECT * FROM w", "(SELECT 1)"])
async def test_whatever_is_a_query_may_be_exported(engine: PostgresEngine, admin: Any, sql: str) -> None:
    await admin.execute("CREATE TABLE t AS SELECT 1 AS n")
    assert (await values(engine, sql))[0] == 1


async def test_rows_come_in_the_querys_order(engine: PostgresEngine) -> None:
    sql = "SELECT n FROM generate_series(1, 300000) AS n ORDER BY n DESC;  -- all of them"
    assert await values(engine, sql) == list(range(300000, 0, -1))


async def test_no_rows_have_their_types_all_the_same(engine: PostgresEngine) -> None:
    table = await read(engine, "SELECT 1 AS a, 'x'::text AS a WHERE false")
    assert (table.num_rows, table.schema.names, table.schema.types) == (0, ["a", "a"], [pa.int32(), pa.string()])


async def test_strings_are_kept_wherever_a_block_ends(engine: PostgresEngine, admin: Any) -> None:
    """Byte order marks, line breaks, quotes and nothing at all, at the start of every block and in the only column."""
    pieces = ["\ufeff", "\n", '"', ",", "", "a", "\r\n", "\\."]
    chosen = random.Random(1)
    texts = ["".join(chosen.choices(pieces, k=5)) if chosen.random() < 0.9 else None for _ in range(2000)]
    texts += ["\ufeff" * (BLOCK_BYTES // 3), "\ufeff first of its block", None, "", "\n" * BLOCK_BYTES, "\ufeff", None]
    await admin.execute("CREATE TABLE t (n serial, v text)")
    await admin.executemany("INSERT INTO t (v) VALUES ($1)", [(text,) for text in texts])
    assert await values(engine, "SELECT v FROM t ORDER BY n") == texts
    table = await read(engine, "SELECT v, n, v FROM t ORDER BY n")
    assert table[0].to_pylist() == table[2].to_pylist() == texts


async def test_an_export_sees_the_table_as_it_was_when_it_began(engine: PostgresEngine, admin: Any) -> None:
    await admin.execute("CREATE TABLE t AS SELECT n, repeat('x', 100) AS v FROM generate_series(1, 200000) AS n")
    found: list[int] = []
    async with engine.open(Query("SELECT n, v FROM t UNION ALL SELECT n, v FROM t")) as stream:
        async for batch in stream.batches():
            if not found:
                await admin.execute("DELETE FROM t WHERE n % 2 = 0; INSERT INTO t VALUES (0, 'new')")
            found += batch.column(0).to_pylist()
    assert sorted(found) == sorted([*range(1, 200001), *range(1, 200001)])


async def test_the_snapshot_is_taken_before_started_is_told(engine: PostgresEngine, admin: Any) -> None:
    await admin.execute("CREATE TABLE t AS SELECT 1 AS n")

    async def started(handle: Any) -> None:
        await admin.execute("UPDATE t SET n = 2")

    async with engine.open(Query("SELECT n FROM t"), started) as stream:
        assert [row async for batch in stream.batches() for row in batch.column(0).to_pylist()] == [1]


async def test_parameters_are_values_whatever_they_hold(engine: PostgresEngine) -> None:
    hostile = "'; DROP TABLE t; -- \\' $1 :other $$ \"x\""
    sql = (
        "SELECT :a AS a, ':a' AS text, $$:a$$ AS more, (ARRAY[1, 2, 3])[1:2] AS slice, :b::int + 1 AS b /* :a */ -- :a"
    )
    table = await read(engine, sql, a=hostile, b=41)
    assert table.to_pylist() == [{"a": hostile, "text": ":a", "more": ":a", "slice": [1, 2], "b": 42}]


async def test_parameters_take_the_type_of_their_place(engine: PostgresEngine, admin: Any) -> None:
    await admin.execute("CREATE TABLE t AS SELECT n, date '2024-01-01' + n AS day FROM generate_series(1, 9) AS n")
    sql = "SELECT n FROM t WHERE day > :day AND n = ANY (:wanted) ORDER BY n LIMIT :rows"
    for day in (date(2024, 1, 3), "2024-01-03"):
        assert await values(engine, sql, day=day, wanted=[1, 3, 4, None, 5], rows=2) == [3, 4]
    assert await values(engine, "SELECT :v::jsonb ->> 'a'", v={"a": "x"}) == ["x"]
    assert await values(engine, "SELECT :v::text[]", v=['a"b', None, "\\", ""]) == [['a"b', None, "\\", ""]]
    assert await values(engine, "SELECT :v::int IS NULL", v=None) == [True]
    assert await values(engine, "SELECT :v::bytea", v=b"\x00\xff") == [b"\x00\xff"]
    described = await engine.describe(Query("SELECT :v::numeric(5,1) AS v", {"v": "1.25"}))
    assert described.columns[0].type == pa.decimal128(5, 1)


@pytest.mark.parametrize(
    ("sql", "parameters"),
    [
        ("SELECT 1", {"a": 1}),
        ("SELECT :b", {}),
        ("SELECT $1::int, :a", {"a": 1}),
        ("SELECT :a::int", {"a": "x"}),
        ("SELECT :a", {"a": "\0"}),
        ("SELECT :a", {"a": object()}),
        ("SELECT ':a", {"a": "'"}),
    ],
)
async def test_parameters_that_do_not_fit_are_refused(
    engine: PostgresEngine, sql: str, parameters: dict[str, Any]
) -> None:
    with pytest.raises(PermanentRunnerError):
        await read(engine, sql, **parameters)


async def test_a_preview_is_the_first_rows(engine: PostgresEngine) -> None:
    columns, table = await engine.preview(Query("SELECT generate_series(1, 1000000000) AS n"), 3)
    assert ([column.name for column in columns], table["n"].to_pylist()) == (["n"], [1, 2, 3])


async def test_the_login_sees_what_it_may_read(engine: PostgresEngine, admin: Any) -> None:
    await admin.execute("""
        CREATE TABLE "We ""ird" (a int, b text, c numeric(4,1)[]);
        CREATE TABLE secret (n int);
        CREATE VIEW v AS SELECT 1 AS n;
        REVOKE ALL ON secret, "We ""ird" FROM PUBLIC;
        GRANT SELECT (a, c) ON "We ""ird" TO reader;
        DROP SCHEMA IF EXISTS hidden CASCADE;
        CREATE SCHEMA hidden;
        CREATE TABLE hidden.t (n int);
    """)
    nobody = Query("")
    (database,) = await engine.catalogs(nobody)
    assert await engine.schemas(nobody, database) == ["public"]
    assert await engine.tables(nobody, database, "public") == ['We "ird', "v"]
    assert await engine.tables(nobody, database, "hidden") == []
    columns = await engine.table_columns(nobody, database, "public", 'We "ird')
    assert [(c.name, c.type) for c in columns] == [("a", pa.int32()), ("c", pa.list_(pa.decimal128(4, 1)))]
    assert await engine.table_columns(nobody, database, "public", "secret") == []
    with pytest.raises(QueryRefused, match="not 'other'"):
        await engine.schemas(nobody, "other")
    assert engine.table_query(database, "public", 'We "ird') == f'SELECT * FROM "{database}"."public"."We ""ird"'
    assert await values(engine, engine.table_query(None, None, "v")) == [1]
    assert await values(engine, engine.table_query(database, "public", "v")) == [1]


async def test_a_check_says_what_works(engine: PostgresEngine) -> None:
    findings = {finding.what: finding.ok for finding in await engine.check(Query(""))}
    assert findings == {
        "connection": True, "login": True, "transport": False, "encoding": True, "outside": True, "row security": True
    }  # fmt: skip


async def test_a_wrong_password_fails_for_good_and_is_not_told(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("hunter2-secret")
    with pytest.raises(PermanentRunnerError) as found:
        await read(PostgresEngine("shop", settings_for(shop, tmp_path)), "SELECT 1")
    assert found.value.code == "login_refused"
    told = f"{found.value!r} {found.value.message} {found.value.hint} {found.value.__cause__!r}"
    assert "hunter2" not in told
    assert PASSWORD not in told


async def test_a_password_has_no_place_in_the_url(shop: Shop, tmp_path: Path) -> None:
    for url in ("postgresql://reader:hunter2@host/shop", "postgresql://reader@host/shop?password=hunter2"):
        with pytest.raises(ValueError, match="password_env or password_file") as found:
            settings_for(shop, tmp_path, url=url)
        assert "hunter2" not in str(found.value)


async def test_no_server_is_a_reason_to_try_again(shop: Shop, tmp_path: Path) -> None:
    settings = settings_for(shop, tmp_path, url="postgresql://reader@127.0.0.1:1/paddock")
    with pytest.raises(TransientResourceError) as found:
        await read(PostgresEngine("shop", settings), "SELECT 1")
    assert (found.value.code, found.value.budget) == ("engine_unavailable", "cluster")


async def test_a_backend_killed_in_the_middle_is_a_reason_to_try_again(engine: PostgresEngine, admin: Any) -> None:
    sql = "SELECT n, repeat('x', 1000) FROM generate_series(1, 10000000) AS n"

    async def run() -> None:
        async with engine.open(Query(sql, job="killed")) as stream:
            async for _ in stream.batches():
                await admin.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'paddock export killed'"
                )

    with pytest.raises(TransientResourceError) as found:
        async with asyncio.timeout(60):
            await run()
    assert found.value.code == "engine_unavailable"


async def test_a_connection_cut_in_the_middle_is_a_reason_to_try_again(
    shop: Shop, admin: object, tmp_path: Path
) -> None:
    """No farewell from the server: the bytes just end, between two rows as far as the reader can tell."""
    async with asyncio.timeout(60), _cutting(shop.port, after=3 * BLOCK_BYTES) as port:
        settings = settings_for(shop, tmp_path, url=f"postgresql://reader@127.0.0.1:{port}/paddock")
        with pytest.raises(TransientResourceError):
            await read(PostgresEngine("shop", settings), "SELECT n, repeat('x', 99) FROM generate_series(1, 1000000) n")


async def test_rows_wait_at_the_server_until_somebody_reads_them(engine: PostgresEngine, admin: Any) -> None:
    """An export that waits for memory: its query runs, and it holds nothing of the result."""
    sql = "SELECT n, repeat('x', 1000) FROM generate_series(1, 100000) AS n"
    waits = "SELECT wait_event FROM pg_stat_activity WHERE application_name = 'paddock export waiting'"
    async with engine.open(Query(sql, job="waiting")) as stream, asyncio.timeout(60):
        assert isinstance(stream, PostgresStream)
        await stream.begin()
        while await admin.fetchval(waits) != "ClientWrite":  # noqa: ASYNC110  the server tells nobody
            await asyncio.sleep(0.01)
        assert (stream._filled, stream._blocks.qsize()) == (0, 0)
        assert sum([batch.num_rows async for batch in stream.batches()]) == 100_000


@pytest.mark.slow
async def test_memory_does_not_grow_with_the_result(engine: PostgresEngine) -> None:
    sql = """SELECT n, 'name ' || n AS name, n::numeric(12,2) AS price, now() AS at, repeat('x', n % 200) AS filling
             FROM generate_series(1, 1000000) AS n"""
    process = psutil.Process(os.getpid())
    rows = 0
    seen: list[int] = []
    async with engine.open(Query(sql)) as stream:
        async for batch in stream.batches():
            rows += batch.num_rows
            assert batch.nbytes < 4 * BLOCK_BYTES
            seen.append(process.memory_info().rss)
    assert rows == 1_000_000
    assert max(seen) < min(seen[: len(seen) // 4]) + 20 * BLOCK_BYTES


class _cutting:  # noqa: N801
    """A way to the server that ends after some bytes of its answer."""

    def __init__(self, port: int, after: int) -> None:
        self._port, self._left = port, after

    async def __aenter__(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, answers_to = await asyncio.open_connection("127.0.0.1", self._port)
        asking = asyncio.create_task(self._carry(reader, answers_to, None))
        await self._carry(there, writer, self._left)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        for end in (writer, answers_to):
            end.transport.abort()

    async def _carry(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, left: int | None) -> None:
        while (left is None or left > 0) and (data := await source.read(1 << 16)):
            target.write(data)
            await target.drain()
            left = None if left is None else left - len(data)


async def test_what_the_driver_relies_on(admin: "asyncpg.Connection[asyncpg.Record]") -> None:
    """The decoder needs whole rows in each piece, however long a row is."""
    pieces: list[bytes] = []

    async def take(piece: bytes) -> None:
        pieces.append(piece)

    await admin.copy_from_query(
        "SELECT repeat(E'\\n', n * 1000 % 299999) || 'x' FROM generate_series(1, 500) AS n", output=take, format="csv"
    )
    assert len(pieces) > 10
    assert all(piece.endswith(b'x"\n') and piece.startswith(b'"') for piece in pieces)


async def test_a_row_that_went_missing_is_noticed() -> None:
    """What a real server does not do: it counts two rows and sends one."""

    class Liar:
        async def copy_from_query(self, _: str, *, output: Any, **__: Any) -> str:
            await output(b"1\n")
            return "COPY 2"

    liar: Any = Liar()
    proven = Proven("SELECT n", [PostgresColumn("n", pa.int32(), "integer", "csv")])
    async with copying("shop", liar, proven) as stream:
        with pytest.raises(TransientResourceError) as found:
            assert [batch async for batch in stream.batches()]
    assert found.value.code == "rows_missing"
