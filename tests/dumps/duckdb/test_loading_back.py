"""A dump as SQL is the same database again: every kind of object, every type, every value."""

import csv
import io
from pathlib import Path

import duckdb
import pytest

from paddock.dumps.duckdb import rendering
from paddock.dumps.model import DumpOptions
from paddock.jobs.errors import PermanentRunnerError
from tests.dumps.duckdb.loading import assert_same, catalog, content, dumped, loaded, made

OBJECTS = [
    'CREATE SCHEMA "my schema"',
    "CREATE SCHEMA empty",
    "CREATE TYPE mood AS ENUM ('glad', 'it''s', '')",
    "CREATE TYPE nothing AS ENUM ()",
    "CREATE TYPE amount AS DECIMAL(18, 3)",
    'CREATE TYPE pair AS STRUCT(a mood, "b c" amount[])',
    'CREATE TYPE "my schema"."select" AS UNION(i INTEGER, t VARCHAR)',
    "COMMENT ON TYPE mood IS 'how it''s going'",
    "CREATE SEQUENCE numbers START 5 INCREMENT 3",
    "SELECT nextval('numbers') FROM range(4)",
    "CREATE SEQUENCE untouched",
    "CREATE SEQUENCE ended MAXVALUE 2",
    "SELECT nextval('ended') FROM range(2)",
    "CREATE SEQUENCE down INCREMENT -2 MINVALUE -100 MAXVALUE 7 START 7 CYCLE",
    "SELECT nextval('down')",
    'CREATE SEQUENCE "my schema"."se q"',
    'SELECT nextval(\'"my schema"."se q"\')',
    "COMMENT ON SEQUENCE numbers IS 'counts'",
    "CREATE MACRO doubled(a, times := 2) AS a * times",
    "CREATE MACRO over(a) AS a, (a, b) AS a + b, (a, b, c := [1, 2], d := 'x, (y') AS a + b + c[1]",
    "CREATE MACRO typed(a INTEGER, b VARCHAR := 'it''s') AS b || a",
    "CREATE MACRO none() AS 42",
    'CREATE MACRO "my schema"."m y"("a b", "select" := 5) AS "a b" + "select"',
    "CREATE MACRO at_least(low, word := 'a') AS TABLE SELECT i AS \"n r\", word AS w FROM range(10) r(i) WHERE i >= low",
    "COMMENT ON MACRO doubled IS 'm'",
    "COMMENT ON MACRO TABLE at_least IS 't m'",
    """CREATE TABLE "my schema"."ta ble"(
        "select" INTEGER DEFAULT nextval('numbers') PRIMARY KEY,
        m mood NOT NULL DEFAULT 'glad'::mood,
        p pair,
        u "my schema"."select",
        c VARCHAR COLLATE NOCASE CHECK (c <> 'x, (y'),
        d DECIMAL(10, 2) DEFAULT 1.5,
        "gen erated" INTEGER GENERATED ALWAYS AS ("select" + 1),
        called INTEGER GENERATED ALWAYS AS (doubled("select")),
        "GENERATED ALWAYS AS(" VARCHAR DEFAULT ' GENERATED ALWAYS AS(',
        since DATE DEFAULT current_date,
        UNIQUE (m, c),
        CHECK ("select" > 0 AND doubled("select") > 0)
    )""",
    """INSERT INTO "my schema"."ta ble"("select", m, p, u, c) VALUES
        (1, 'it''s', {'a': 'glad', 'b c': [1.5, NULL]}, 5, 'A'), (2, '', NULL, 'five'::VARCHAR, 'b'),
        (3, 'glad', {'a': NULL, 'b c': []}, NULL, NULL)""",
    'COMMENT ON TABLE "my schema"."ta ble" IS \'line one\nline two\'',
    'COMMENT ON COLUMN "my schema"."ta ble"."gen erated" IS \'made\'',
    'CREATE TABLE zebra(id INTEGER PRIMARY KEY, "group" INTEGER, second INTEGER, UNIQUE ("group", second))',
    "INSERT INTO zebra SELECT i, i // 2, i % 2 FROM range(20) r(i)",
    """CREATE TABLE middle(id INTEGER PRIMARY KEY, z INTEGER REFERENCES zebra(id), g INTEGER, s INTEGER,
        FOREIGN KEY (g, s) REFERENCES zebra("group", second))""",
    "INSERT INTO middle SELECT i, i, i // 2, i % 2 FROM range(20) r(i)",
    "CREATE TABLE aardvark(m INTEGER REFERENCES middle(id), z INTEGER REFERENCES zebra(id))",
    "INSERT INTO aardvark VALUES (1, 2), (NULL, 3), (3, NULL)",
    "CREATE TABLE tree(id INTEGER PRIMARY KEY, parent INTEGER REFERENCES tree(id), word VARCHAR, CHECK (word <> ''))",
    "INSERT INTO tree VALUES (1, NULL, 'root')",
    "INSERT INTO tree VALUES (2, 1, 'a')",
    "INSERT INTO tree VALUES (3, 2, 'b')",
    "UPDATE tree SET parent = 3 WHERE id = 3 AND false",
    "CREATE INDEX words ON tree(word)",
    'CREATE UNIQUE INDEX "in dex" ON "my schema"."ta ble"(("select" + 1), c)',
    "COMMENT ON INDEX words IS 'i'",
    "CREATE TABLE no_rows(a INTEGER)",
    "CREATE TABLE all_deleted AS SELECT i FROM range(10000) r(i)",
    "DELETE FROM all_deleted",
    "CREATE TABLE scores(v DOUBLE)",
    'CREATE VIEW zz_first AS SELECT "select", c FROM "my schema"."ta ble" WHERE c <> \'it\'\'s\'',
    'CREATE VIEW a_second(x, "y z") AS SELECT * FROM zz_first',
    'CREATE VIEW "my schema"."v i" AS SELECT doubled(x) AS d, w FROM main.a_second, at_least(3)',
    "COMMENT ON VIEW a_second IS 'v'",
    "COMMENT ON COLUMN zz_first.c IS 'c'",
    "CREATE MACRO of_view(a) AS (SELECT max(x) + a FROM a_second)",
    "CREATE MACRO of_table(a) AS TABLE SELECT * FROM zebra WHERE id > a",
    "CREATE VIEW of_macro AS SELECT of_view(1) AS m, t.* FROM of_table(3) t",
]


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    return made(tmp_path / "shop.db", OBJECTS)


async def test_all_kinds_of_objects_come_back(objects: Path) -> None:
    assert_same(objects, await dumped(objects, "sql"))


async def test_what_came_back_works(objects: Path) -> None:
    script = await dumped(objects, "sql")
    with duckdb.connect(str(objects)) as was, loaded(script) as now:
        for question in (
            "SELECT nextval('numbers'), nextval('untouched'), nextval('down'), nextval('\"my schema\".\"se q\"')",
            "SELECT doubled(4), doubled(4, times := 3), over(1), over(1, 2, [9], 'q'), over(1, 2, d := 'q'), typed(1), \"none\"()",
            'SELECT "my schema"."m y"(1)',
            "SELECT * FROM at_least(8)",
            'SELECT * FROM "my schema"."v i" ORDER BY ALL',
            "SELECT * FROM of_macro ORDER BY ALL",
            'SELECT "gen erated", called FROM "my schema"."ta ble" WHERE c = \'a\'',
        ):
            assert now.execute(question).fetchall() == was.execute(question).fetchall(), question
        for refused in (
            "SELECT nextval('ended')",
            "INSERT INTO tree VALUES (9, 77, 'x')",
            "INSERT INTO middle VALUES (99, 99, NULL, NULL)",
            "INSERT INTO tree VALUES (9, 1, '')",
            'INSERT INTO "my schema"."ta ble"("select", c) VALUES (8, \'x, (y\')',
            "INSERT INTO zebra VALUES (1, 99, 99)",
        ):
            with pytest.raises(duckdb.Error):
                now.execute(refused)
            with pytest.raises(duckdb.Error):
                was.execute(refused)


async def test_every_type_comes_back(tmp_path: Path) -> None:
    path = made(
        tmp_path / "types.db",
        ["CREATE TABLE all_types AS SELECT * FROM test_all_types()", *EXTREMES],
    )

    assert_same(path, await dumped(path, "sql"))


EXTREMES = [
    "CREATE TABLE floats(d DOUBLE, f FLOAT)",
    """INSERT INTO floats VALUES ('-0.0', '-0.0'), ('0.0', '0.0'), ('nan', 'nan'), ('-nan', '-nan'), ('inf', '-inf'),
        (5e-324, 1e-45), (2.2250738585072014e-308, 1.1754944e-38), (1.7976931348623157e308, 3.4028235e38),
        (0.1 + 0.2::DOUBLE, 0.1), (123456789012345678, 16777217), (1e22, 1e10), (9007199254740993, NULL),
        ('0111111111111000000000000000000000000000000000000000000000000001'::BIT::DOUBLE,
         '01111111110000000000000000000101'::BIT::FLOAT)""",
    "CREATE TABLE nested_floats(l STRUCT(d DOUBLE, f FLOAT[])[], m MAP(DOUBLE, FLOAT))",
    """INSERT INTO nested_floats SELECT [{'d': d, 'f': [f, NULL, 'nan']}, NULL, {'d': 1.5, 'f': []}], MAP {d: f}
        FROM floats WHERE NOT isnan(d)""",
    "INSERT INTO nested_floats SELECT [{'d': d, 'f': [f]}, {'d': 1, 'f': NULL}], NULL FROM floats",
    "CREATE TABLE intervals(i INTERVAL, l INTERVAL[], s STRUCT(i INTERVAL)[])",
    """INSERT INTO intervals SELECT i, [i, NULL, INTERVAL 1 DAY], [{'i': i}, {'i': INTERVAL 1 DAY}, NULL] FROM (VALUES
        (to_months(-2147483648) + to_days(-2147483648) + to_microseconds(-9223372036854775808)),
        (to_months(2147483647) + to_days(2147483647) + to_microseconds(9223372036854775807)),
        (to_months(2147483647) + to_days(-2147483648) + to_microseconds(9223372036854775807)),
        (to_months(-14) + to_days(3) + to_microseconds(-1)), (to_months(0)), (to_days(30)), (to_months(1)),
        (to_microseconds(86400000000)), (to_microseconds(-3600000001)), (NULL)) v(i)""",
    'CREATE TABLE texts(t VARCHAR, j JSON, l VARCHAR[], s STRUCT("it\'s" VARCHAR, "a""b" JSON)[])',
    """INSERT INTO texts SELECT t, to_json(t), [t, NULL, 'x'], [{'it''s': t, 'a"b': to_json(t)}, NULL] FROM (VALUES
        (''), (NULL), ('NULL'), ('null'), (''''), ('''''; DROP TABLE texts; --'), ('a' || chr(0) || 'b'), (chr(0)),
        ('a' || chr(13) || chr(10) || 'b\\'), (chr(13)), ('\\r' || chr(13) || ''''), ('line' || chr(10) || '.read x'),
        (chr(160) || 'nbsp' || chr(12288)), ('🦆' || chr(769)), ('"quoted, [text]{}"'), ('$$'), ('E''x'), ('a;b'),
        (repeat('long ''text'' ', 1000)), (repeat(chr(13), 5000)), (repeat(chr(0), 3000)), ('-- x'), ('/* x'), ('\\N')
        ) v(t)""",
    """INSERT INTO texts(j) VALUES ('{"a": 1, "a": 1.0,  "big": 123456789012345678901234567890}'), ('null'), ('"x"'),
        ('[1,\n2]'), ('1e400')""",
    "CREATE TABLE bytes(b BLOB, l BLOB[], bits BIT, ll BIT[])",
    """INSERT INTO bytes VALUES ('', ['', NULL, '\\x00\\xFF'], '0', ['1', '10']), (NULL, NULL, NULL, NULL),
        ('\\x00', [], '0000000000000001', [NULL]), ('abc''"\\x0D\\x0A', ['\\xDE\\xAD'], '111', [])""",
    "CREATE TABLE decimals(a DECIMAL(38, 38), b DECIMAL(38, 0), c DECIMAL(1, 1), d DECIMAL(18, 17), e DECIMAL(4, 0)[])",
    """INSERT INTO decimals VALUES
        ('0.12345678901234567890123456789012345678', '99999999999999999999999999999999999999', '0.9', '-1.00000000000000001',
         ['-9999', NULL, '0']),
        ('-0.00000000000000000000000000000000000001', '-99999999999999999999999999999999999999', '-0.1', '0', [])""",
    """CREATE TABLE times(d DATE, t TIME, n TIME_NS, z TIMETZ, s TIMESTAMP_S, ms TIMESTAMP_MS, us TIMESTAMP,
        ns TIMESTAMP_NS, tz TIMESTAMPTZ, l TIMESTAMPTZ[], m MAP(TIMESTAMPTZ, DATE))""",
    """INSERT INTO times SELECT d, t, n, z, s, ms, us, ns, tz, [tz, NULL], MAP {tz: d} FROM (VALUES
        ('infinity'::DATE, '24:00:00'::TIME, '24:00:00'::TIME_NS, '24:00:00-15:59:59'::TIMETZ, 'infinity'::TIMESTAMP_S,
         'infinity'::TIMESTAMP_MS, 'infinity'::TIMESTAMP, 'infinity'::TIMESTAMP_NS, 'infinity'::TIMESTAMPTZ),
        ('-infinity', '00:00:00', '00:00:00.000000001', '00:00:00+15:59:59', '-infinity', '-infinity', '-infinity',
         '-infinity', '-infinity'),
        ('5877642-06-25 (BC)', '23:59:59.999999', '23:59:59.999999999', '12:34:56.789+05:30', '0044-03-15 (BC) 01:02:03',
         '0044-03-15 (BC) 01:02:03.004', '290309-12-22 (BC) 00:00:00', '1677-09-22 00:00:00.000000001',
         '290309-12-22 (BC) 00:00:00+00'),
        ('5881580-07-10', '00:00:00.000001', '12:00:00', '00:00:00-00:00:01', '9999-12-31 23:59:59',
         '1969-12-31 23:59:59.999', '294247-01-10 04:00:54.775806', '2262-04-11 23:47:16.854775806',
         '294247-01-10 04:00:54.775806+00'),
        ('1582-10-10', NULL, NULL, NULL, NULL, NULL, '1582-10-10 00:00:00.5', NULL, '1582-10-10 00:00:00.5+00'),
        ('0001-01-01', NULL, NULL, NULL, NULL, NULL, '0001-01-01', NULL, '2020-03-08 07:30:00+00')
        ) v(d, t, n, z, s, ms, us, ns, tz)""",
    "CREATE TABLE numbers(h HUGEINT, uh UHUGEINT, b BIGNUM, ub UBIGINT, l HUGEINT[], ul UBIGINT[], m MAP(BIGNUM, UHUGEINT))",
    """INSERT INTO numbers VALUES
        ('-170141183460469231731687303715884105728', '340282366920938463463374607431768211455', '-1', '18446744073709551615',
         ['-170141183460469231731687303715884105728', '170141183460469231731687303715884105727', NULL],
         ['18446744073709551615', '0'], MAP {'12345678901234567890123456789012345678901234567890'::BIGNUM:
         '340282366920938463463374607431768211455'::UHUGEINT})""",
    """CREATE TABLE deep(u UNION(n INTEGER, t VARCHAR, l UNION(a DATE, b VARCHAR)[]),
        m MAP(INTEGER[], STRUCT(a MAP(VARCHAR, INTEGER[][])[])), a STRUCT(x UNION(q INTEGER, "r s" VARCHAR)[2])[],
        e ENUM('a', 'b''c')[])""",
    "INSERT INTO deep(u) VALUES (union_value(n := NULL)), (NULL), (union_value(t := '')), (union_value(t := NULL))",
    """INSERT INTO deep VALUES
        (union_value(l := [union_value(a := '2020-01-01'::DATE)::UNION(a DATE, b VARCHAR), NULL,
            union_value(b := 'it''s')::UNION(a DATE, b VARCHAR), union_value(b := NULL)::UNION(a DATE, b VARCHAR)]),
         MAP {[1, NULL]: {'a': [MAP {'k': [[1], NULL, []]}, MAP {}, NULL]}, []::INTEGER[]: NULL, [2]: {'a': NULL}},
         [{'x': [union_value(q := 1)::UNION(q INTEGER, "r s" VARCHAR), NULL]}, NULL, {'x': NULL}], ['a', NULL, 'b''c']),
        (NULL, MAP {}, [], [])""",
    "CREATE TABLE shapes(g GEOMETRY, l GEOMETRY[])",
    "INSERT INTO shapes VALUES ('POINT(1 2)', ['POINT Z(0.1 -0.0 3)', NULL]), (NULL, []), ('POINT EMPTY', NULL)",
    "CREATE TABLE booleans(b BOOLEAN, l BOOLEAN[], u UUID, t TINYINT[])",
    """INSERT INTO booleans VALUES (true, [false, NULL], 'f0000000-0000-0000-0000-000000000001', [-128, 127]),
        (NULL, NULL, NULL, NULL)""",
]


COLLATIONS = [
    'CREATE TABLE words(a VARCHAR COLLATE NOCASE, b VARCHAR COLLATE NOACCENT, c VARCHAR, d VARCHAR COLLATE "NOCASE.NFC")',
    "INSERT INTO words VALUES ('Ab', 'é', 'x', 'É'), (NULL, 'it''s', NULL, ''), ('\\n', chr(13), 'q', chr(0))",
]


async def test_columns_of_different_collations_come_back(tmp_path: Path) -> None:
    database = made(tmp_path / "shop.db", COLLATIONS)

    assert_same(database, await dumped(database, "sql"))
    rows = list(csv.reader(io.StringIO((await dumped(database, "csv", single=True)).decode(), newline="")))
    assert rows[1:] == [["Ab", "é", "x", "É"], ["", "it's", "", ""], ["\\n", "\r", "q", "\0"]]


async def test_what_duckdb_cannot_read_names_its_table_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = made(tmp_path / "shop.db", ["CREATE TABLE orders AS SELECT 1 AS n"])
    monkeypatch.setattr(rendering, "ROW", "nonsense nonsense")

    with pytest.raises(PermanentRunnerError, match=r"cannot read table 'orders' of shop\.db: Parser Error"):
        await dumped(database, "sql")


async def test_a_column_named_rowid_hides_no_rows(tmp_path: Path) -> None:
    path = made(
        tmp_path / "hidden.db",
        ['CREATE TABLE t("RowId" INTEGER, b VARCHAR)', "INSERT INTO t SELECT 7, 'x' || i FROM range(12345) r(i)"],
    )

    assert_same(path, await dumped(path, "sql"))


async def test_an_empty_database_is_a_script_that_does_nothing(tmp_path: Path) -> None:
    path = made(tmp_path / "empty.db", [])

    script = await dumped(path, "sql")

    assert_same(path, script)
    assert script.startswith(b"-- ")
    assert b"COMMIT;\n" in script
    assert await dumped(path, "json") == b"{}\n"


async def test_a_broken_view_is_said_and_the_rest_comes_back(tmp_path: Path) -> None:
    path = made(
        tmp_path / "broken.db",
        ["CREATE TABLE t(a INTEGER)", "CREATE TABLE u(a INTEGER)", "CREATE VIEW v AS SELECT * FROM t", "DROP TABLE t"],
    )

    script = await dumped(path, "sql")

    assert b"-- The view 'v' is broken in the database:\n" in script
    with loaded(script) as now:
        assert [table[1] for table in catalog(now)["tables"]] == ["u"]


async def test_tables_may_be_chosen(objects: Path) -> None:
    script = await dumped(objects, "sql", DumpOptions(tables=["aardvark", "my schema.ta ble"]))

    with loaded(script) as now, duckdb.connect(str(objects), read_only=True) as was:
        assert [table[:2] for table in catalog(now)["tables"]] == [("main", "aardvark"), ("my schema", "ta ble")]
        assert content(now, "my schema", "ta ble") == content(was, "my schema", "ta ble")
        assert catalog(now)["views"] == []


async def test_tables_may_be_left_out_with_all_that_needs_them(objects: Path) -> None:
    script = await dumped(objects, "sql", DumpOptions(exclude_tables=["my schema.ta ble", "zebra"]))

    with loaded(script) as now:
        names = {table[1] for table in catalog(now)["tables"]}
        assert {"middle", "aardvark", "tree"} <= names
        assert not names & {"zebra", "ta ble"}
        assert now.execute("SELECT count(*) FROM middle").fetchall() == [(20,)]


async def test_an_unknown_table_is_refused(objects: Path) -> None:
    for options in (DumpOptions(tables=["Tree"]), DumpOptions(exclude_tables=["ta ble"])):
        with pytest.raises(PermanentRunnerError, match=r"Table '(Tree|ta ble)' does not exist\.") as refused:
            await dumped(objects, "sql", options)
        assert refused.value.code == "unknown_table"


async def test_schema_and_data_each_alone_make_the_whole(objects: Path) -> None:
    schema = await dumped(objects, "sql", DumpOptions(schema_only=True))
    data = await dumped(objects, "sql", DumpOptions(data_only=True))

    assert b"INSERT" not in schema
    assert b"CREATE" not in data
    with loaded(schema) as now, duckdb.connect(str(objects), read_only=True) as was:
        now.execute(data.decode())
        for table in ("zebra", "middle", "tree", "aardvark"):
            assert content(now, "main", table) == content(was, "main", table)


async def test_a_type_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = made(tmp_path / "variant.db", ["CREATE TABLE t(a INTEGER, v STRUCT(x VARIANT))"])

    with pytest.raises(PermanentRunnerError, match="Column 'v' of table 't' has the type VARIANT") as refused:
        await dumped(path, "sql")
    assert refused.value.code == "unsupported_type"
    assert await dumped(path, "sql", DumpOptions(exclude_tables=["t"]))
