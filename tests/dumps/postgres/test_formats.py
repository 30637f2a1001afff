"""Each format says the same."""

import csv
import io
import json

import pytest

from paddock.dumps.model import DumpOptions
from paddock.dumps.postgres.source import PostgresSource
from tests.dumps.postgres.conftest import Connection, Place
from tests.dumps.postgres.dumping import DRAFT, dumped

ROWS = """
CREATE TABLE things (id int PRIMARY KEY, name text, price numeric, photo bytea, weight float8);
INSERT INTO things VALUES (1, 'a "quoted", one', 12345678901234567890.123456789000, '\\x00ff', 'NaN'),
    (2, '', -0.10, '', '-Infinity'), (3, NULL, 'NaN', NULL, 5e-324), (4, E'two\\nlines\\r\\n=', 0, '\\x0a', 0.1);
CREATE SCHEMA other;
CREATE TABLE other.things (only_one text);
INSERT INTO other.things VALUES (NULL), (''), ('\\N');
"""


async def test_sql_loads_into_an_empty_database(admin: Connection, source: Place, target: Place) -> None:
    await admin.execute(ROWS)

    whole = await dumped(source.settings())

    await target.load(whole.data)
    again = await dumped(target.settings())
    assert again.data == whole.data
    assert whole.counts == {"things": 4, "other.things": 3}


async def test_json(admin: Connection, source: Place) -> None:
    await admin.execute(ROWS)

    whole = await dumped(source.settings(), "json")

    rows = json.loads(b"[" + whole.tables["things"] + b"]", parse_float=str, parse_int=str)
    assert [row["name"] for row in rows] == ['a "quoted", one', "", None, "two\nlines\r\n="]
    assert [row["price"] for row in rows] == ["12345678901234567890.123456789000", "-0.10", "NaN", "0"]
    assert [row["photo"] for row in rows] == [{"$hex": "00ff"}, {"$hex": ""}, None, {"$hex": "0a"}]
    assert [row["weight"] for row in rows] == ["NaN", "-Infinity", "5e-324", "0.1"]
    assert json.loads(b"[" + whole.tables["other.things"] + b"]") == [
        {"only_one": None}, {"only_one": ""}, {"only_one": r"\N"},
    ]  # fmt: skip
    assert whole.counts == {"things": 4, "other.things": 3}


async def test_csv(admin: Connection, source: Place) -> None:
    await admin.execute(ROWS)

    whole = await dumped(source.settings(), "csv")

    assert whole.tables["things"] == (
        b'1,"a ""quoted"", one",12345678901234567890.123456789000,\\x00ff,NaN\r\n'
        b'2,"",-0.10,\\x,-Infinity\r\n3,,NaN,,5e-324\r\n4,"two\nlines\r\n=",0,\\x0a,0.1\r\n'
    )
    assert whole.tables["other.things"] == b'\\N\r\n""\r\n"\\N"\r\n'
    assert len(list(csv.reader(io.StringIO(whole.tables["things"].decode(), newline="")))) == 4
    assert whole.counts == {"things": 4, "other.things": 3}


async def test_csv_safe(admin: Connection, source: Place) -> None:
    await admin.execute(
        "CREATE TABLE t (n int, a text); INSERT INTO t VALUES (-1, '=1+1'), (-2, '+1'), (3, '-x'), (4, '@x'),"
        r" (5, E'\tx'), (6, E'\rx'), (7, 'x='), (8, ''), (9, NULL)"
    )

    whole = await dumped(source.settings(), "csv", csv_safe=True)

    assert whole.data == b"-1,'=1+1\r\n-2,'+1\r\n3,'-x\r\n4,'@x\r\n5,'\tx\r\n6,\"'\rx\"\r\n7,x=\r\n8,\"\"\r\n9,\r\n"


async def test_custom_is_restored_by_pg_restore(admin: Connection, source: Place, target: Place) -> None:
    await admin.execute(ROWS)

    whole = await dumped(source.settings(), "custom")

    await target.run("pg_restore", "--dbname", target.name, "--exit-on-error", stdin=whole.data)
    assert (await dumped(target.settings())).data == (await dumped(source.settings())).data
    assert whole.counts == {"things": 4, "other.things": 3}


@pytest.mark.parametrize("format", ["json", "csv"])
async def test_rows_beyond_one_chunk(admin: Connection, source: Place, format: str) -> None:
    await admin.execute("CREATE TABLE big AS SELECT i, repeat('x', 1000) || i AS text FROM generate_series(1, 10000) i")

    whole = await dumped(source.settings(), format)  # type: ignore[arg-type]

    if format == "json":
        found = [(row["i"], row["text"]) for row in json.loads(b"[" + whole.data + b"]")]
    else:
        found = [(int(i), text) for i, text in csv.reader(io.StringIO(whole.data.decode(), newline=""))]
    assert found == [(i, "x" * 1000 + str(i)) for i in range(1, 10001)]
    assert whole.counts == {"big": 10000}


async def test_what_the_server_packs_counts_for_more_than_its_bytes(admin: Connection, source: Place) -> None:
    """Else its dump would have more parts than a store takes: they are sized before it is written."""
    packed = "(SELECT string_agg(md5((n * i)::text) || repeat(' ', 150), '') FROM generate_series(1, 1000) i)"
    await admin.execute(f"CREATE TABLE packed AS SELECT {packed} AS said FROM generate_series(1, 40) n")
    nothing = ", ".join(f"a_column_without_values_{n} int" for n in range(40))
    await admin.execute(f"CREATE TABLE nothing ({nothing}); INSERT INTO nothing SELECT FROM generate_series(1, 20000)")
    await admin.execute("ANALYZE")
    for table in ("packed", "nothing"):
        written = len((await dumped(source.settings(), "json", tables=[table])).data)
        frozen = await PostgresSource(source.settings()).open("json", DumpOptions(tables=[table]), DRAFT)
        await frozen.close()
        stored = await admin.fetchval("SELECT pg_table_size($1::text::regclass)", table)

        assert written > 3 * stored, table
        assert written < 3 * frozen.size, table
