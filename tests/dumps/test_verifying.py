"""A look at a dump tells a whole one from one that is cut short, changed or somebody else's."""

import asyncio
import gzip
import json
import sqlite3
import zipfile
from collections.abc import Callable, Mapping
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import apsw
import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.dumps.composing import Composer
from paddock.dumps.compressing import compressed
from paddock.dumps.digesting import chain_of
from paddock.dumps.duckdb.catalog import display_name
from paddock.dumps.model import Compression, DumpOptions, Format
from paddock.dumps.verifying import statements
from paddock.dumps.verifying.checking import verify
from paddock.dumps.verifying.findings import Findings, NotWhole
from paddock.dumps.verifying.reading import Record
from tests.dumps.frozen import InMemory, texts
from tests.dumps.frozen import ended as dumped

SHOP = """\
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT);
INSERT INTO item VALUES(1,'a;b');
INSERT INTO item VALUES(2,'it''s -- no comment');
INSERT INTO item VALUES(3,'two
lines;
/*');
CREATE TABLE "order; 'x'"([it's] INTEGER, `a"b` BLOB);
INSERT INTO "order; 'x'" VALUES(1,X'00ff');
/* a comment; with 'quotes */ -- and one more; "
CREATE INDEX by_name ON item(name);
CREATE TRIGGER changed AFTER UPDATE ON item BEGIN
  INSERT INTO "order; 'x'" VALUES(2,NULL);
  DELETE FROM item WHERE id = 9;
END;
COMMIT;
"""
ROWS = {"item": 3, "order; 'x'": 1}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(content: bytes, name: str = "shop.sql") -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return written


def record(file: Path, counts: Mapping[str, int]) -> Record:
    """As a server knows the file that is there now."""
    return Record(counts, file.name, 5, chain_of(BytesIO(file.read_bytes()), 5))


def look(path: Path) -> Findings:
    return verify(path, lambda done, total: None)


def rows(found: Findings) -> dict[str, int | None]:
    return {table.table: table.rows for table in found.tables}


def packed(content: bytes, how: Compression, frame: int = 100) -> bytes:
    return b"".join(compressed(content[start : start + frame], how) for start in range(0, len(content), frame))


@pytest.mark.parametrize("how", ["none", "gzip", "zstd"])
def test_a_whole_dump_of_sqlite_is_ok(write: Write, how: Compression) -> None:
    found = look(write(dumped(SHOP.encode(), ROWS, how=how)))

    assert found.ok
    assert not found.notes
    assert found.compared
    assert found.format == "sql (sqlite)"
    assert rows(found) == ROWS
    assert found.point_in_time == "2026-11-16T09:30:15.250Z"


def test_a_row_that_is_missing_is_a_difference(write: Write) -> None:
    found = look(write(dumped(SHOP.replace("INSERT INTO item VALUES(1,'a;b');\n", "").encode(), ROWS)))

    assert not found.ok
    assert [(table.table, table.rows, table.expected, table.ok) for table in found.tables] == [
        ("item", 2, 3, False),
        ("order; 'x'", 1, 1, True),
    ]


def test_a_table_that_is_missing_is_a_difference(write: Write) -> None:
    found = look(write(dumped(SHOP.encode(), {**ROWS, "gone": 0})))

    assert [(table.table, table.ok) for table in found.tables if not table.ok] == [("gone", False)]


@pytest.mark.parametrize("part_size", [100, 8 << 20], ids=["many parts", "less than a part"])
def test_a_changed_byte_is_seen_by_the_digest(write: Write, part_size: int) -> None:
    content = dumped(SHOP.encode(), ROWS, part_size)
    assert look(write(content)).ok

    for before, after in [(b"a;b", b"a;c"), (b"COMMIT", b"commit"), (b"09:30:15", b"09:30:16"), (b'"shop"', b'"shoe"')]:
        with pytest.raises(NotWhole, match="was changed"):
            look(write(content.replace(before, after)))


@pytest.mark.parametrize(
    ("how", "frame"), [("none", b"-- paddock"), ("gzip", b"\x1f\x8b"), ("zstd", b"\x28\xb5\x2f\xfd")]
)
def test_every_byte_before_the_last_line_counts(write: Write, how: Compression, frame: bytes) -> None:
    content = composed({"t": texts(5)}, "sql", compress=how)
    assert look(write(content)).ok

    for at in range(0, content.rindex(frame), 7):
        with pytest.raises(NotWhole):
            look(write(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]))


def test_a_dump_that_somebody_compressed_or_decompressed_since_is_no_changed_one(write: Write) -> None:
    plain = gzip.decompress(composed({"t": texts(5)}, "sql", compress="gzip"))
    packed_later = packed(composed({"t": texts(5)}, "sql"), "zstd")

    for content in (plain, packed_later):
        found = look(write(content))
        assert found.ok
        assert "cannot be compared" in found.notes[0]


@pytest.mark.parametrize("how", ["none", "gzip", "zstd"])
def test_a_dump_that_is_cut_anywhere_is_not_whole(write: Write, how: Compression) -> None:
    content = dumped(SHOP.encode(), ROWS, part_size=100, how=how)

    for length in [*range(1, len(content), 23), len(content) - 1]:
        with pytest.raises(NotWhole, match=r"cut short|empty|no dump"):
            look(write(content[:length]))


def test_what_is_behind_the_last_line_is_not_ours(write: Write) -> None:
    with pytest.raises(NotWhole, match="does not end as a dump"):
        look(write(dumped(SHOP.encode(), ROWS) + b"DROP TABLE item;\n"))


def test_a_statement_that_answers_is_not_the_last_one(write: Write) -> None:
    found = look(
        write(
            dumped(
                SHOP.replace("COMMIT;", "SELECT 1;\nPRAGMA user_version;\nDELETE FROM item;\nCOMMIT;").encode(), ROWS
            )
        )
    )

    assert rows(found) == {**ROWS, "item": 0}


def test_a_statement_larger_than_what_is_read_at_once(write: Write) -> None:
    large = f"PRAGMA foreign_keys=OFF;\nCREATE TABLE t(a);\nINSERT INTO t VALUES('{';x' * 3_000_000}');\n".encode()

    assert rows(look(write(dumped(large, {"t": 1})))) == {"t": 1}


def test_text_that_is_not_utf_8_stays_apart(write: Write) -> None:
    sql = b"PRAGMA foreign_keys=OFF;\nCREATE TABLE t(a UNIQUE);\nINSERT INTO t VALUES('\xff''');\nINSERT INTO t VALUES('\xfe''');\n"

    assert look(write(dumped(sql, {"t": 2}))).ok


def test_a_virtual_table_written_into_the_schema_is_counted(write: Write) -> None:
    source = apsw.Connection(":memory:")
    source.execute("CREATE VIRTUAL TABLE words USING fts5(text); INSERT INTO words VALUES('one'),('two')")
    shadow = [str(row[0]) for row in source.execute("SELECT sql || ';' FROM sqlite_schema WHERE name LIKE 'words_%'")]
    inserts = []
    for name in ("words_data", "words_idx", "words_content", "words_docsize", "words_config"):
        inserts += [
            f"INSERT INTO {name} VALUES({','.join(apsw.format_sql_value(value) for value in row)});"
            for row in source.execute(f"SELECT * FROM {name}")
        ]
    virtual = (
        "INSERT INTO sqlite_schema VALUES('table','words','words',0,'CREATE VIRTUAL TABLE words USING fts5(text)');"
    )
    lines = ["PRAGMA foreign_keys=OFF;", "BEGIN;", *shadow, *inserts]
    lines += ["PRAGMA writable_schema=ON;", virtual, "PRAGMA writable_schema=OFF;", "COMMIT;", ""]

    assert rows(look(write(dumped("\n".join(lines).encode(), {"words": 2})))) == {"words": 2}


def test_a_collation_of_an_application_is_stood_in_for(write: Write) -> None:
    sql = b"PRAGMA foreign_keys=OFF;\nCREATE TABLE t(a TEXT COLLATE german PRIMARY KEY);\nINSERT INTO t VALUES('b');\n"

    assert look(write(dumped(sql, {"t": 1}))).ok


def test_a_dump_reaches_no_other_file(write: Write, tmp_path: Path) -> None:
    for statement in (f"ATTACH '{tmp_path}/other.db' AS other;", f"VACUUM INTO '{tmp_path}/other.db';"):
        with pytest.raises(NotWhole, match="does not load"):
            look(write(dumped(f"PRAGMA foreign_keys=OFF;\n{statement}\n".encode(), {})))
    assert not (tmp_path / "other.db").exists()


def test_a_transaction_that_is_left_open_is_not_whole(write: Write) -> None:
    with pytest.raises(NotWhole, match="transaction"):
        look(write(dumped(b"PRAGMA foreign_keys=OFF;\nBEGIN;\nCREATE TABLE t(a);\n", {"t": 0})))


def test_only_rows_are_said_to_be_only_rows(write: Write) -> None:
    found = look(write(dumped(b"PRAGMA foreign_keys=OFF;\nBEGIN;\nINSERT INTO t VALUES(1);\nCOMMIT;\n", {"t": 1})))

    assert not found.tables
    assert "only rows" in found.notes[0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\x7fELF\0\0\0\0" * 100, "no dump of Paddock"),
        (b"CREATE TABLE t(a);\n", "does not end as a dump"),
        (b"-- paddock: {}\n", "does not end as a dump"),
        (
            b'-- paddock: {"tables": {"t": 1}, "compress": "none", "bytes": 9000, "partSize": 5000, "digest": ""}\n',
            "shorter than",
        ),
    ],
)
def test_what_is_no_dump_is_said_to_be_none(write: Write, content: bytes, said: str) -> None:
    with pytest.raises(NotWhole, match=said):
        look(write(content))


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(NotWhole, match="cannot be read: No such file"):
        look(tmp_path / "nothing.sql")


# DuckDB


DUCK = """\
-- DuckDB 1.5.6, database 'ware.house'
BEGIN TRANSACTION;
CREATE SCHEMA "in;ner";
CREATE TABLE main.t(a INTEGER, b VARCHAR[]);
CREATE TABLE "in;ner"."we""ird"(a BLOB);
INSERT INTO main.t VALUES (1,['x]','it''s;']),(2,NULL);
INSERT INTO "in;ner"."we""ird" VALUES ('\\xAA'::BLOB);
CREATE VIEW main.v AS SELECT * FROM "ware.house".main.t;
CREATE MACRO main.m(x) AS $$;' $$ || x;
COMMIT;
"""


def test_a_whole_dump_of_duckdb_is_ok(write: Write) -> None:
    found = look(write(dumped(DUCK.encode(), {"t": 2, display_name("in;ner", 'we"ird'): 1})))

    assert found.ok, found.tables
    assert found.format == "sql (duckdb)"


def test_a_dump_of_duckdb_reaches_no_other_file(write: Write, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("a\n1\n")
    for statement in (
        f"COPY (SELECT 1) TO '{tmp_path}/out.csv';",
        f"CREATE TABLE t AS FROM '{tmp_path}/secret.csv';",
        f"ATTACH '{tmp_path}/other.db';",
    ):
        with pytest.raises(NotWhole, match="does not load"):
            look(write(dumped(f"-- DuckDB 1.5.6, database 'shop'\n{statement}\n".encode(), {})))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret.csv", "shop.sql"]


def test_a_database_of_duckdb_is_no_dump(tmp_path: Path) -> None:
    duckdb.connect(str(tmp_path / "shop.duckdb")).close()

    with pytest.raises(NotWhole, match="is a DuckDB database itself"):
        look(tmp_path / "shop.duckdb")


# The database file itself


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "shop 100%.db"
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT); CREATE INDEX by_name ON item(name)")
    connection.executemany("INSERT INTO item(name) VALUES(?)", [(f"name {n}" * 20,) for n in range(500)])
    connection.close()
    return path


@pytest.mark.parametrize("how", ["none", "gzip", "zstd"])
def test_a_database_file_is_checked_and_counted(database: Path, write: Write, how: Compression) -> None:
    content = database.read_bytes()
    found = look(write(content if how == "none" else packed(content, how, 4096), "shop.db"))

    assert found.ok
    assert not found.compared
    assert rows(found) == {"item": 500}


def test_a_damaged_database_file_is_not_whole(database: Path, write: Write) -> None:
    content = bytearray(database.read_bytes())
    content[8192:8200] = b"\xff" * 8

    with pytest.raises(NotWhole, match=r"damaged|cannot be read"):
        look(write(bytes(content)))
    with pytest.raises(NotWhole, match=r"damaged|cannot be read"):
        look(write(database.read_bytes()[:-4096]))


# JSON, CSV and zips


def composed(
    tables: Mapping[str, list[str]], format: Format, *, single: bool = False, compress: Compression = "none"
) -> bytes:
    async def all_of_it() -> bytes:
        composer = Composer(InMemory(tables), format, DumpOptions(compress=compress), single=single)
        return b"".join([chunk async for chunk in composer.chunks()])

    return asyncio.run(all_of_it())


def test_json_of_a_database_is_counted_by_table(write: Write) -> None:
    found = look(write(composed({"a": texts(70), "b": [], 'c "x"': texts(5)}, "json"), "shop.json"))

    assert found.ok
    assert not found.compared
    assert rows(found) == {"a": 70, "b": 0, 'c "x"': 5}


def test_json_of_one_table_is_counted(write: Write) -> None:
    assert rows(look(write(composed({"a": texts(7)}, "json", single=True)))) == {"(one table)": 7}
    assert rows(look(write(composed({"a": []}, "json", single=True)))) == {"(one table)": 0}
    assert rows(look(write(composed({}, "json")))) == {}


@pytest.mark.parametrize("single", [True, False])
def test_json_that_is_cut_anywhere_is_not_whole(write: Write, single: bool) -> None:
    tables = {"a": texts(4)} if single else {"a": texts(4), "b": texts(2)}
    content = composed(tables, "json", single=single).rstrip()

    for length in range(1, len(content)):
        with pytest.raises(NotWhole, match=r"cut short|empty"):
            look(write(content[:length]))


def test_values_of_any_length_and_layout_are_json(write: Write) -> None:
    content = b'[\n{"n": %s, "f": 9.0e+999, "long": "%s"},\n{"json": {"a":\n\n[1,\n2]}}\n]\n' % (
        b"7" * 9999,
        b"x" * 3_000_000,
    )

    assert rows(look(write(content))) == {"(one table)": 2}


@pytest.mark.parametrize(
    "content",
    [
        b'[{"a": NaN}]',
        b'[{"a": 1} {"a": 2}]',
        b"[1, 2]",
        b'{"t": 5}',
        b'[{"a": 1}] []',
        b'[{"a": tru}, {"b": 5}, {"c": 7}]',
    ],
)
def test_other_json_is_not_ours(write: Write, content: bytes) -> None:
    with pytest.raises(NotWhole, match="not a dump in JSON"):
        look(write(content + b" " * 50))


def test_json_that_is_not_utf_8_is_not_whole(write: Write) -> None:
    with pytest.raises(NotWhole, match="not a dump in JSON"):
        look(write(b'[{"a": "\xff"}]'))


def test_csv_is_counted(write: Write) -> None:
    content = b'n,text\r\n1,"a\r\nb"\r\n2,\xff\r\n3,"%s"\r\n' % (b"x" * 300_000)

    assert rows(look(write(content, "item.csv"))) == {"(one table)": 3}
    assert rows(look(write(packed(content, "gzip", 1000), "item.csv.gz"))) == {"(one table)": 3}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'n,text\r\n1,"a', "cut short or no CSV"),
        (b"n,text\r\n1,a\r\n2,b", "has no end"),
        (b"n,text\r\n1,a\r\n2\r\n", "row 2 has 1 cells, and the header 2"),
        (b'n,text\r\n1,a"b"c"\r\n2,"x"y\r\n', "no CSV"),
    ],
)
def test_csv_that_is_cut_or_ragged_differs(write: Write, content: bytes, said: str) -> None:
    found = look(write(content, "item.csv"))

    assert not found.ok
    assert said in str(found.tables[0].problem)


TABLES = {"a": texts(300), "ä/b": texts(40), "empty": []}


def test_a_zip_is_compared_with_its_manifest(write: Write) -> None:
    found = look(write(composed(TABLES, "csv"), "shop.zip"))

    assert found.ok
    assert found.compared
    assert rows(found) == {"a": 300, "ä/b": 40, "empty": 0}
    assert found.point_in_time == "2026-11-16T09:30:15.250Z"


def rezipped(content: bytes, change: Callable[[dict[str, bytes]], Any]) -> bytes:
    with zipfile.ZipFile(BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    change(files)
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return made.getvalue()


def test_a_zip_with_other_rows_than_its_manifest_says_differs(write: Write) -> None:
    content = composed(TABLES, "csv")
    fewer = rezipped(
        content, lambda files: files.update({"a.csv": files["a.csv"][: files["a.csv"].rindex(b"\r\n", 0, -2) + 2]})
    )
    assert [(table.table, table.rows) for table in look(write(fewer)).tables if not table.ok] == [("a", 299)]

    without = rezipped(content, lambda files: files.pop("empty.csv"))
    assert [table.problem for table in look(write(without)).tables if not table.ok] == ["empty.csv is not in the zip"]


def test_a_zip_that_is_cut_changed_or_foreign_is_not_whole(write: Write) -> None:
    content = composed(TABLES, "csv")
    for length in range(10, len(content), 997):
        with pytest.raises(NotWhole, match="cut short"):
            look(write(content[:length]))
    changed = bytearray(content)
    changed[len(content) // 3] ^= 0xFF
    with pytest.raises(NotWhole, match="cut short or changed"):
        look(write(bytes(changed)))
    with pytest.raises(NotWhole, match="without the manifest"):
        look(write(rezipped(content, lambda files: files.pop("manifest.json"))))


# Statements


@given(
    st.lists(
        st.sampled_from(
            [
                "SELECT 1;",
                "INSERT INTO t VALUES('a;b''c','');",
                '-- x; "\n',
                "/* ; ' */",
                'SELECT "a;""b", [c;\'d], `e;`, 4-3/2;',
                "CREATE TRIGGER a AFTER INSERT ON t BEGIN SELECT ';'; DELETE FROM t; END;",
                "\n;",
            ]
        ),
        max_size=12,
    ),
    st.integers(min_value=1, max_value=40),
)
def test_text_is_cut_only_between_statements(parts: list[str], piece: int) -> None:
    text = "".join(parts).encode()
    boundaries = {0, len(text)}
    at = 0
    for part in parts:
        at += len(part.encode())
        if part.endswith(";"):
            boundaries.add(at)

    class Small(BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(piece)

    cut = list(statements.stretches(Small(text), statements.SQLITE, lambda each: apsw.complete(each.decode())))

    assert b"".join(cut) == text
    at = 0
    for stretch in cut:
        at += len(stretch)
        assert at in boundaries, cut


def test_one_long_statement_is_not_read_again_and_again() -> None:
    class Counting(BytesIO):
        reads = 0

        def read(self, size: int | None = -1) -> bytes:
            self.reads += 1
            return super().read(size)

    stream = Counting(b"INSERT INTO t VALUES('" + b"x" * (64 << 20) + b"');")
    [_] = statements.stretches(stream, statements.SQLITE)

    assert stream.reads < 12


def test_the_last_line_may_tell_of_many_tables(write: Write) -> None:
    tables = {f"table {number} {'x' * 8000}": 0 for number in range(200)}
    made = "".join(f'CREATE TABLE "{name}"(a);\n' for name in tables)
    content = dumped(f"PRAGMA foreign_keys=OFF;\n{made}".encode(), tables)
    assert content.rindex(b"\n", 0, -1) < len(content) - (1 << 20)

    assert len(look(write(content)).tables) == 200


def test_the_reader_keeps_only_a_part_in_memory(write: Write) -> None:
    import tracemalloc

    row = f"INSERT INTO t VALUES('{'x' * 900}');\n".encode()
    content = dumped(
        b"PRAGMA foreign_keys=OFF;\nBEGIN;\nCREATE TABLE t(a);\n" + row * 50_000 + b"COMMIT;\n", {"t": 50_000}, 1 << 30
    )
    path = write(packed(content, "zstd", 4 << 20))
    del content
    tracemalloc.start()
    try:
        assert look(path).ok
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("counts", "verdicts"),
    [
        ({"a": 2, "b": 0}, {"a": True, "b": True}),
        ({"a": 3, "b": 0}, {"a": False, "b": True}),
        ({"a": 2, "b": 0, "c": 1}, {"a": True, "b": True, "c": False}),
        ({"a": 2}, {"a": True, "b": False}),
    ],
    ids=["the same", "fewer rows", "a table too few", "a table too many"],
)
def test_a_file_without_counts_is_compared_with_those_of_its_dump(
    write: Write, counts: dict[str, int], verdicts: dict[str, bool]
) -> None:
    file = write(b'{"a": [{"x": 1}, {"x": 2}], "b": []}', "shop.json")

    found = verify(file, lambda done, total: None, record=record(file, counts))

    assert {table.table: table.ok for table in found.tables} == verdicts
    assert (found.compared, found.ok) == (True, all(verdicts.values()))


@pytest.mark.parametrize(("name", "content"), [("t.json", b'[{"x": 1}]'), ("t.csv", b"x\r\n1\r\n")])
def test_a_file_of_one_table_is_compared_under_its_name(write: Write, name: str, content: bytes) -> None:
    file = write(content, name)
    found = verify(file, lambda done, total: None, record=record(file, {"orders": 2}))

    assert [(table.table, table.rows, table.expected, table.ok) for table in found.tables] == [("orders", 1, 2, False)]


def zipped(rows: int) -> bytes:
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("orders.csv", "x\r\n" + "1\r\n" * rows)
        manifest = {"files": {"orders.csv": "orders"}, "tables": {"orders": rows}}
        archive.writestr("manifest.json", json.dumps(manifest))
    return made.getvalue()


def sqlite_file(tmp_path: Path, rows: int) -> bytes:
    with closing(sqlite3.connect(tmp_path / f"{rows}.made")) as connection:
        connection.execute("CREATE TABLE orders(x)")
        connection.executemany("INSERT INTO orders VALUES (?)", [(n,) for n in range(rows)])
        connection.commit()
    return (tmp_path / f"{rows}.made").read_bytes()


def in_sql(rows: int) -> bytes:
    inserted = "".join(f"INSERT INTO orders VALUES({n});\n" for n in range(rows))
    return dumped(f"CREATE TABLE orders(x);\n{inserted}".encode(), {"orders": rows})


@pytest.mark.parametrize("name", ["shop.zip", "shop.db", "shop.sql"])
def test_a_good_dump_that_is_not_the_expected_one_is_told_from_it(tmp_path: Path, write: Write, name: str) -> None:
    def content(rows: int) -> bytes:
        if name == "shop.db":
            return sqlite_file(tmp_path, rows)
        return zipped(rows) if name == "shop.zip" else in_sql(rows)

    file = write(content(2), name)
    known = record(file, {"orders": 2})
    found = verify(file, lambda done, total: None, record=known)
    assert (found.ok, found.compared, rows(found), found.notes) == (True, True, {"orders": 2}, [])

    write(content(3), name)
    assert look(file).ok
    with pytest.raises(NotWhole, match="was changed"):
        verify(file, lambda done, total: None, record=known)


@pytest.mark.parametrize("name", ["shop.zip", "shop.db", "shop.sql"])
def test_rows_are_compared_with_the_expected_where_bytes_cannot_be(tmp_path: Path, write: Write, name: str) -> None:
    content = {"shop.zip": zipped(3), "shop.db": sqlite_file(tmp_path, 3), "shop.sql": in_sql(3)}[name]
    file = write(content, name)
    known = Record({"orders": 2, "gone": 0}, f"{name}.gz", 5, "of a file that was compressed")

    found = verify(file, lambda done, total: None, record=known)

    assert [(table.table, table.rows, table.expected, table.ok) for table in found.tables] == [
        ("orders", 3, 2, False),
        ("gone", None, 0, False),
    ]
    assert [note[:30] for note in found.notes] == ["It was compressed or decompres"]


def test_a_changed_value_in_a_file_without_a_digest_is_seen_by_that_of_its_dump(write: Write) -> None:
    file = write(b'[{"x": "one"}]', "t.json")
    known = record(file, {"t": 1})
    write(b'[{"x": "two"}]', "t.json")

    with pytest.raises(NotWhole, match="was changed"):
        verify(file, lambda done, total: None, record=known)
