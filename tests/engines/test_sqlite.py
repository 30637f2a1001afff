"""SQLite in its child: what is read, what is refused, and that values fit their declared types or say so."""

import asyncio
import datetime
import decimal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pyarrow as pa
import pytest

from paddock.engines.children.sqlite import SqliteEngine
from paddock.engines.children.sqlite_gate import authorize, declared_types, one_statement, prove
from paddock.engines.children.sqlite_session import failure, opened
from paddock.engines.children.sqlite_types import array, kind_of
from paddock.engines.children.wire import Failure
from paddock.engines.engine import Query, QueryRefused
from paddock.engines.settings import SqliteSettings
from paddock.jobs.errors import PermanentRunnerError

# A pragma as a table is found out when it is read.
PRAGMA = "SELECT CAST(name AS TEXT) AS name FROM pragma_table_info('things')"
SCHEMA = """
CREATE TABLE things (
    id INTEGER PRIMARY KEY, name VARCHAR(20), price DECIMAL(10, 2), open BOOLEAN, day DATE, at DATETIME, noon TIME,
    weight REAL, data BLOB, any_kind, number NUMERIC, small TINYINT, note TEXT
);
INSERT INTO things VALUES
    (1, 'é', 10.25, 1, '2024-02-29', '2024-02-29 12:30:00.5', '12:00:00', 1.5, x'00ff', 1, 1, 7, 'n'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
    (9223372036854775807, '', '0.10', 0, '0001-01-01', '9999-12-31T23:59:59.999999', '23:59:59.999999', 9e999, x'',
     'x', 2.5, -1, '');
CREATE TABLE wrong (id INTEGER, what TEXT);
INSERT INTO wrong VALUES (1, 'fine'), (2, x'00'), (3, 'fine');
CREATE VIEW dear AS SELECT id, price FROM things WHERE price > 1;
CREATE VIRTUAL TABLE words USING fts5(body);
INSERT INTO words VALUES ('one two'), ('two three');
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("sqlite")
    with apsw.Connection(str(place / "app.db")) as connection:
        connection.execute(SCHEMA)
    connection.close()
    (place / "other.db").write_bytes((place / "app.db").read_bytes())
    return place


@pytest.fixture(scope="module")
def engine(place: Path) -> Iterator[SqliteEngine]:
    engine = SqliteEngine(
        "app", SqliteSettings(path=place / "app.db", memory_bytes=128 << 20, spill_folder=place / "spill")
    )
    yield engine
    asyncio.run(engine.close())


async def read(engine: SqliteEngine, sql: str, **parameters: Any) -> pa.Table:
    async with engine.open(Query(sql, parameters)) as stream:
        batches = [batch async for batch in stream.batches()]
        schema = pa.schema([pa.field(column.name, column.type) for column in stream.columns])
    return pa.Table.from_batches(batches, schema=schema)


async def refused(engine: SqliteEngine, sql: str, **parameters: Any) -> PermanentRunnerError:
    with pytest.raises(PermanentRunnerError) as caught:
        await read(engine, sql, **parameters)
    return caught.value


async def test_declared_types_become_exact_ones(engine: SqliteEngine) -> None:
    found = await read(
        engine,
        "SELECT id, name, price, open, day, at, noon, weight, data, CAST(any_kind AS TEXT) AS t,"
        " CAST(number AS REAL) AS r, small, CAST(id + 0 AS INTEGER) AS i FROM things ORDER BY id",
    )
    assert [str(kind) for kind in found.schema.types] == [
        "int64",
        "string",
        "decimal128(10, 2)",
        "bool",
        "date32[day]",
        "timestamp[us]",
        "time64[us]",
        "double",
        "binary",
        "string",
        "double",
        "int64",
        "int64",
    ]
    first, second, third = found.to_pylist()
    assert first == {
        "id": 1,
        "name": "é",
        "price": decimal.Decimal("10.25"),
        "open": True,
        "day": datetime.date(2024, 2, 29),
        "at": datetime.datetime(2024, 2, 29, 12, 30, 0, 500000),  # noqa: DTZ001  a wall clock, as declared
        "noon": datetime.time(12),
        "weight": 1.5,
        "data": b"\x00\xff",
        "t": "1",
        "r": 1.0,
        "small": 7,
        "i": 1,
    }
    assert set(second.values()) == {2, None}
    assert third["id"] == 2**63 - 1
    assert third["price"] == decimal.Decimal("0.10")
    assert third["weight"] == float("inf")
    assert third["at"].isoformat() == "9999-12-31T23:59:59.999999"
    assert (third["name"], third["data"]) == ("", b"")


async def test_a_value_of_another_kind_is_named(engine: SqliteEngine) -> None:
    problem = await refused(engine, "SELECT id, what FROM wrong ORDER BY id")
    assert problem.code == "type_mismatch"
    assert "'what' is declared as TEXT, but row 2 of the result holds a blob" in problem.message


@pytest.mark.parametrize(
    ("declared", "value", "kind"),
    [
        ("INTEGER", "'x'", "text"),
        ("INTEGER", "1.5", "a real number"),
        ("BOOLEAN", "2", "an integer that is no bool"),
        ("DATE", "'yesterday'", "text that is no date32[day]"),
        ("DATE", "20240101", "an integer"),
        ("DATETIME", "1700000000", "an integer"),
        ("DATETIME", "'2024-01-01 10:00:00+02:00'", "text that is no timestamp[us]"),
        ("DECIMAL(4, 2)", "1.234", "a real number that is no decimal128(4, 2)"),
        ("DECIMAL(4, 2)", "1000", "an integer that is no decimal128(4, 2)"),
        ("REAL", "'x'", "text"),
        ("BLOB", "'x'", "text"),
        ("STRING", "12", "an integer"),
    ],
)
def test_what_does_not_fit_is_never_bent(declared: str, value: str, kind: str) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute(f"CREATE TABLE t (c {declared}); INSERT INTO t VALUES (NULL), ({value})")
    values = [row[0] for row in connection.execute("SELECT c FROM t")]
    into = kind_of("c", declared)
    with pytest.raises(Failure) as caught:
        array(pa.field("c", into.arrow), declared, into, values, before=1000)
    assert f"row 1,002 of the result holds {kind}." in str(caught.value)


@pytest.mark.parametrize("expression", ["count(*)", "id + 1", "any_kind", "number", "'text'", "CAST(id AS NUMERIC)"])
async def test_an_expression_without_a_type_asks_for_a_cast(engine: SqliteEngine, expression: str) -> None:
    problem = await refused(engine, f"SELECT {expression} AS n FROM things")
    assert isinstance(problem, QueryRefused)
    assert problem.code == "type_not_declared"
    assert "CAST(" in str(problem.hint)


async def test_parameters_have_names(engine: SqliteEngine) -> None:
    sql = "SELECT id, CAST(:b AS TEXT) AS \":b\" FROM things WHERE id = :a AND ':no' = ':no' -- :neither"
    found = await read(engine, sql, a=1, b="é'")
    assert found.to_pylist() == [{"id": 1, ":b": "é'"}]
    assert "no value for :a" in (await refused(engine, "SELECT id FROM things WHERE id = :a")).message
    assert "not know :b" in (await refused(engine, "SELECT id FROM things", b=1)).message
    assert "names" in (await refused(engine, "SELECT id FROM things WHERE id = ?")).message


async def test_an_empty_result_has_its_types_and_repeated_names_stay(engine: SqliteEngine) -> None:
    async with engine.open(Query("SELECT id, price, id FROM things WHERE id < 0")) as stream:
        assert [batch async for batch in stream.batches()] == []
        assert [(column.name, str(column.type), column.native) for column in stream.columns] == [
            ("id", "int64", "INTEGER"),
            ("price", "decimal128(10, 2)", "DECIMAL(10, 2)"),
            ("id", "int64", "INTEGER"),
        ]


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM things",
        "DELETE FROM things RETURNING id",
        "INSERT INTO things (id) VALUES (5) RETURNING id",
        "UPDATE things SET id = 6",
        "WITH gone AS (SELECT 1) DELETE FROM things",
        "CREATE TABLE t (x)",
        "CREATE TEMP TABLE t AS SELECT 1 AS x",
        "DROP TABLE things",
        "ATTACH 'other.db' AS other",
        "DETACH main",
        "VACUUM INTO 'copy.db'",
        "PRAGMA journal_mode = DELETE",
        "PRAGMA table_info('things')",
        "PRAGMA writable_schema = ON",
        "SELECT load_extension('evil.so')",
        "SELECT CAST(load_extension('evil.so') AS TEXT)",
        "SELECT CAST(writefile('x', 'y') AS TEXT)",
        "SELECT CAST(readfile('/etc/passwd') AS TEXT)",
        "SELECT CAST(fts3_tokenizer('simple') AS BLOB)",
        "INSERT INTO words (words) VALUES ('rebuild')",
        "INSERT INTO words_data VALUES (99, x'00')",
        "REINDEX",
        "ANALYZE",
        "BEGIN",
        "COMMIT",
        "EXPLAIN SELECT 1",
        "EXPLAIN QUERY PLAN SELECT 1",
        "SELECT id FROM things; DELETE FROM things",
        "SELECT id FROM things; SELECT id FROM things",
        "SELECT id FROM things -- one\n; /* two */ DROP TABLE things",
        "SELECT id FROM things) ; DROP TABLE things; --",
        "SELECT CAST(':x' AS TEXT), ';' ; ;; DROP TABLE things",
        "",
        " ; ",
        "-- nothing",
    ],
)
def test_only_one_query_that_reads_passes_the_gate(place: Path, sql: str) -> None:
    connection = opened(place / "app.db")
    connection.authorizer = authorize
    with pytest.raises((Failure, apsw.Error)) as caught:
        declared_types(connection, prove(connection, sql))
    connection.close()
    assert failure(caught.value).facts["code"] == "query_refused"


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("SELECT 1 ;", "SELECT 1 "),
        ("SELECT ';' /* ; */ ; -- ;", "SELECT ';' /* ; */ "),
        ("SELECT 1 /* SQLite ends this comment itself ; DROP TABLE t", None),
        ('SELECT "a;b", [c;d], `e;f` FROM t;;', 'SELECT "a;b", [c;d], `e;f` FROM t'),
    ],
)
def test_what_stands_after_a_query_is_cut_off(sql: str, text: str | None) -> None:
    assert one_statement(sql) == (sql if text is None else text)


async def test_the_gate_stands_before_every_query(engine: SqliteEngine, place: Path) -> None:
    before = {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()}
    for sql in ("DELETE FROM things", "ATTACH 'other.db' AS o", "VACUUM INTO 'copy.db'", PRAGMA):
        assert (await refused(engine, sql)).code == "query_refused"
    assert {path.name: path.read_bytes() for path in place.iterdir() if path.is_file()} == before


async def test_full_text_tables_and_views_are_read(engine: SqliteEngine) -> None:
    words = await read(engine, "SELECT CAST(body AS TEXT) AS body FROM words WHERE words MATCH 'three'")
    assert words.to_pylist() == [{"body": "two three"}]
    assert (await read(engine, "SELECT * FROM dear")).num_rows == 1


async def test_many_rows_arrive_in_order(engine: SqliteEngine) -> None:
    sql = (
        "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t WHERE n < :most)"
        " SELECT CAST(n AS INTEGER) AS n FROM t"
    )
    seen = 0
    async with engine.open(Query(sql, {"most": 300_000})) as stream:
        async for batch in stream.batches():
            assert batch.column(0).to_pylist() == list(range(seen + 1, seen + 1 + batch.num_rows))
            seen += batch.num_rows
    assert seen == 300_000


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT CAST(zeroblob(900000000) AS BLOB) AS z",
        "SELECT CAST(printf('%.*c', 900000000, 'x') AS TEXT) AS z",
        "SELECT CAST(group_concat(hex(zeroblob(1000000))) AS TEXT) AS z FROM things, things t, things u, things v, things w",
    ],
)
async def test_a_query_that_wants_gigabytes_fails_alone(engine: SqliteEngine, sql: str) -> None:
    assert (await refused(engine, sql)).code in {"query_out_of_memory", "row_too_large"}


async def test_a_writer_in_the_middle_is_not_seen(place: Path) -> None:
    path = place / "wal.db"
    writer = apsw.Connection(str(path))
    assert writer.pragma("journal_mode", "wal") == "wal"
    writer.execute("CREATE TABLE t (n INTEGER)")
    with writer:
        writer.executemany("INSERT INTO t VALUES (?)", ((n,) for n in range(200_000)))
    engine = SqliteEngine("wal", SqliteSettings(path=path, spill_folder=place / "spill"))
    try:
        async with engine.open(Query("SELECT n FROM t ORDER BY rowid")) as stream:
            batches = stream.batches()
            rows = (await anext(batches)).num_rows
            writer.execute("DELETE FROM t")
            async for batch in batches:
                rows += batch.num_rows
        assert rows == 200_000
        assert (await read(engine, "SELECT n FROM t")).num_rows == 0
    finally:
        await engine.close()
        writer.close()


async def test_what_is_no_database_is_said(place: Path) -> None:
    (place / "no.db").write_text("not a database" * 100)
    engine = SqliteEngine("no", SqliteSettings(path=place / "no.db", spill_folder=place / "spill"))
    try:
        assert "not a database" in (await refused(engine, "SELECT 1")).message
        findings = {finding.what: finding.ok for finding in await engine.check(Query(""))}
        assert findings["query"] is False
        assert findings["database no.db"] is True, "nothing of where it lies"
    finally:
        await engine.close()
    missing = SqliteEngine("none", SqliteSettings(path=place / "none.db", spill_folder=place / "spill"))
    told = await refused(missing, "SELECT 1")
    assert told.code == "engine_database_missing"
    assert str(place) not in told.message
    assert not (place / "none.db").exists()
    await missing.close()


async def test_metadata(engine: SqliteEngine) -> None:
    query = Query("")
    assert await engine.catalogs(query) == ["sqlite"]
    assert await engine.schemas(query, "sqlite") == ["main"]
    assert {"things", "dear", "wrong"} <= set(await engine.tables(query, "sqlite", "main"))
    columns = await engine.table_columns(query, "sqlite", "main", "wrong")
    assert [(column.name, column.native) for column in columns] == [("id", "INTEGER"), ("what", "TEXT")]
    columns, table = await engine.preview(Query("SELECT id FROM things ORDER BY id"), 1)
    assert (len(columns), table.to_pylist()) == (1, [{"id": 1}])
    assert all(finding.ok for finding in await engine.check(query))
