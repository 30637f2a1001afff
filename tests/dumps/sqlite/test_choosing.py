"""What of a database, and statements that the sqlite3 command would read otherwise than they stand there."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from paddock.dumps.model import DumpOptions
from paddock.dumps.sqlite.source import FrozenSqlite
from paddock.jobs.errors import PermanentRunnerError
from tests.dumps.sqlite.loading import AT, contents, dumped, loaded, made, parsed_json, schema

SHOP = """
CREATE TABLE Customers (id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT);
CREATE TABLE orders (id INTEGER PRIMARY KEY AUTOINCREMENT, customer INTEGER REFERENCES Customers(id), note TEXT);
CREATE TABLE secrets (word TEXT);
CREATE INDEX by_customer ON orders (customer);
CREATE VIEW named AS SELECT name, note FROM Customers JOIN orders ON customer = Customers.id;
CREATE TRIGGER keep BEFORE DELETE ON orders BEGIN SELECT raise(ABORT, 'no'); END;
CREATE VIRTUAL TABLE words USING fts5(body);
INSERT INTO Customers(name) VALUES ('Ada'), ('Grace');
INSERT INTO orders(customer, note) VALUES (1, 'first'), (2, 'second');
INSERT INTO secrets VALUES ('xyzzy');
INSERT INTO words VALUES ('some words');
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    return made(tmp_path / "shop.db", SHOP)


def _shown(path: Path, query: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    rows: list[Any] = connection.execute(query).fetchall()
    connection.close()
    return rows


async def test_chosen_tables_come_with_what_is_theirs(shop: Path, tmp_path: Path) -> None:
    copy = loaded(await dumped(shop, tables=["ORDERS", "words"]), tmp_path / "loaded.db")

    names = [row[0] for row in _shown(copy, "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'words_%'")]
    assert sorted(names) == ["by_customer", "keep", "orders", "sqlite_sequence", "words"]
    assert _shown(copy, "SELECT * FROM orders") == [(1, 1, "first"), (2, 2, "second")]
    assert _shown(copy, "SELECT * FROM sqlite_sequence") == [("orders", 2)]
    assert _shown(copy, "SELECT body FROM words WHERE words MATCH 'some'") == [("some words",)]


async def test_excluded_tables_stay_away_in_every_format(shop: Path) -> None:
    for data in (
        await dumped(shop, exclude_tables=["Secrets", "words"]),
        await dumped(shop, "json", exclude_tables=["secrets", "WORDS"]),
    ):
        assert b"xyzzy" not in data
        assert b"some words" not in data
        assert b"Grace" in data


async def test_a_schema_alone_makes_the_same_schema_without_rows(shop: Path, tmp_path: Path) -> None:
    copy = loaded(await dumped(shop, schema_only=True), tmp_path / "loaded.db")

    assert schema(copy) == schema(shop)
    assert _shown(copy, "SELECT count(*) FROM orders") == [(0,)]
    connection = apsw.Connection(str(copy))
    connection.execute("INSERT INTO words VALUES ('works')")
    connection.close()


async def test_rows_alone_load_into_the_schema(shop: Path, tmp_path: Path) -> None:
    copy = loaded(await dumped(shop, schema_only=True), tmp_path / "loaded.db")
    data = await dumped(shop, data_only=True)
    loaded(data, copy)

    assert b"CREATE" not in data
    assert contents(copy) == contents(shop)
    assert _shown(copy, "SELECT body FROM words WHERE words MATCH 'some'") == [("some words",)]


@pytest.mark.parametrize("options", [{"tables": ["nobody"]}, {"exclude_tables": ["nobody"]}, {"tables": ["named"]}])
async def test_an_unknown_table_is_named(shop: Path, options: dict[str, Any]) -> None:
    wish = next(iter(options.values()))[0]
    with pytest.raises(PermanentRunnerError, match=f"Table '{wish}' does not exist") as refused:
        await dumped(shop, **options)
    assert refused.value.code == "unknown_table"


async def test_rows_of_a_virtual_table_are_counted_though_others_carry_them(shop: Path) -> None:
    frozen = FrozenSqlite(shop, AT, DumpOptions())
    words = next(table for table in frozen.tables if table.name == "words")
    assert (await frozen.rows(words, "sql", None)).counts == {"words": 1}
    await frozen.close()


async def test_statements_that_the_command_reads_otherwise_are_the_same_after_loading(tmp_path: Path) -> None:
    path = made(
        tmp_path / "lines.db",
        "CREATE TABLE windows (a TEXT DEFAULT 'x\r\ny',\r\n b INTEGER -- half\r\n);\n"
        "CREATE TABLE \"two\r\nlines\" (\"c\r\nd\" TEXT UNIQUE);\n"
        "CREATE TABLE divided (a, b DEFAULT (6\n/\n2));\n"
        "CREATE VIEW last AS SELECT a\ngo\n FROM windows;\n"
        "CREATE VIEW quoted AS SELECT '\n/\n' AS \"\ngo\n\";\n"
        "CREATE INDEX \"by\r\nd\" ON \"two\r\nlines\" (\"c\r\nd\");\n"
        "CREATE TRIGGER t AFTER INSERT ON windows BEGIN\r\n SELECT 1;\r\n SELECT 2 /* ;\nEND; */; END;\n"
        "INSERT INTO windows(b) VALUES (1); INSERT INTO divided(a) VALUES (1); INSERT INTO \"two\r\nlines\" VALUES ('x');",
    )  # fmt: skip

    copy = loaded(await dumped(path), tmp_path / "loaded.db")

    assert schema(copy) == schema(path)
    assert contents(copy) == contents(path)
    connection = apsw.Connection(str(copy))
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


async def test_a_schema_that_hides_a_second_statement_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path / "evil.db", "CREATE TABLE t (a)")
    connection = apsw.Connection(str(path))
    connection.pragma("writable_schema", "on")
    connection.execute("UPDATE sqlite_schema SET sql = 'CREATE TABLE t (a);' || char(10) || '.shell touch owned'")
    connection.close()

    with pytest.raises(PermanentRunnerError) as refused:
        await dumped(path)
    assert refused.value.code in ("damaged_schema", "damaged_database")


async def test_an_unknown_collation_does_not_keep_rows_from_being_read(tmp_path: Path) -> None:
    path = tmp_path / "collated.db"
    connection = apsw.Connection(str(path))
    connection.create_collation("backwards", lambda one, two: (one < two) - (one > two))
    connection.execute(
        "CREATE TABLE w (a TEXT COLLATE backwards PRIMARY KEY, b TEXT) WITHOUT ROWID;"
        "CREATE TABLE r (a TEXT COLLATE backwards UNIQUE, b INTEGER)"
    )
    with connection:
        for number in range(7_000):
            connection.execute("INSERT INTO w VALUES (?, ?); INSERT INTO r VALUES (?, ?)", (f"k{number}", number) * 2)
    connection.close()

    tables = parsed_json(await dumped(path, "json"))
    assert sorted(row["a"] for row in tables["w"]) == sorted(f"k{number}" for number in range(7_000))
    assert [row["b"] for row in tables["r"]] == list(range(7_000))

    script = (await dumped(path)).decode()
    there = apsw.Connection(str(tmp_path / "loaded.db"))
    there.create_collation("backwards", lambda one, two: (one < two) - (one > two))
    for _ in there.execute(script):
        pass
    assert there.pragma("integrity_check") == "ok"
    there.close()


async def test_a_virtual_table_of_an_unknown_module_is_kept_by_what_it_is_made_of(tmp_path: Path) -> None:
    path = made(tmp_path / "strange.db", "CREATE TABLE strange_data (a); INSERT INTO strange_data VALUES (5)")
    connection = apsw.Connection(str(path))
    connection.pragma("writable_schema", "on")
    sql = "CREATE VIRTUAL TABLE strange USING nobody_has(this)"
    connection.execute("INSERT INTO sqlite_schema VALUES ('table', 'strange', 'strange', 0, ?)", (sql,))
    connection.close()

    copy = loaded(await dumped(path), tmp_path / "loaded.db")

    assert schema(copy) == schema(path)
    assert parsed_json(await dumped(path, "json")) == [{"a": 5}]


async def test_rows_that_break_a_check_of_their_table_load_back(tmp_path: Path) -> None:
    path = made(
        tmp_path / "old.db",
        "CREATE TABLE t (a INTEGER Check (a > 0)); PRAGMA ignore_check_constraints = ON; INSERT INTO t VALUES (-1), (1)",
    )

    script = await dumped(path)

    assert contents(loaded(script, tmp_path / "loaded.db")) == contents(path)
    later = apsw.Connection(":memory:")
    for _ in later.execute(script.decode()):
        pass
    with pytest.raises(apsw.ConstraintError):
        later.execute("INSERT INTO t VALUES (-2)")
    later.close()
