"""One nasty database: dumped, loaded back with the stock command, and the same by type and bytes."""

import io
import json
import math
import struct
import zipfile
from pathlib import Path
from typing import Any

import apsw
import pytest

from paddock.engines.children.quoting import quoted as name
from tests.dumps.sqlite.loading import assert_same_csv, contents, dumped, loaded, made, parsed_csv, parsed_json, schema

SCHEMA = r"""
PRAGMA page_size = 8192;
PRAGMA user_version = -7;
PRAGMA application_id = 1634886766;
CREATE TABLE plain (id INTEGER PRIMARY KEY, i INTEGER, r REAL, t TEXT, b BLOB, n NUMERIC, x);
CREATE TABLE "sel""ect 'quoted', -- not a comment" ("group" TEXT, "a""b" TEXT, [order by] TEXT, "é€😀" TEXT, "" TEXT);
CREATE TABLE "select" ("from" INTEGER, "where" TEXT DEFAULT 'a;b' /* ; */, "values" -- a comment; with an end
 );
CREATE TABLE generated (a INTEGER, doubled INTEGER AS (a * 2) VIRTUAL, b TEXT, joined TEXT AS (a || b) STORED, c TEXT);
CREATE TABLE strict_one (a INTEGER PRIMARY KEY, b TEXT, c REAL, d BLOB, e ANY) STRICT;
CREATE TABLE no_rowid (a TEXT, b INTEGER, c, PRIMARY KEY (a, b)) WITHOUT ROWID;
CREATE TABLE mixed (a TEXT, b TEXT COLLATE NOCASE, c REAL, d, PRIMARY KEY (b DESC, a COLLATE RTRIM, c DESC)) WITHOUT ROWID;
CREATE TABLE named_true (a TEXT PRIMARY KEY, "true" TEXT, "FALSE" TEXT) WITHOUT ROWID;
INSERT INTO named_true VALUES ('a', NULL, 'b');
CREATE TABLE shadowed (rowid TEXT, _rowid_ INTEGER, oid BLOB);
CREATE TABLE half_shadowed (rowid TEXT, oid INTEGER);
CREATE TABLE descending (id INTEGER PRIMARY KEY DESC, t TEXT);
CREATE TABLE counted (id INTEGER PRIMARY KEY AUTOINCREMENT, t TEXT);
CREATE TABLE empty (a, b, c);
CREATE TABLE one (only TEXT);
CREATE TABLE parent (id INTEGER PRIMARY KEY, child REFERENCES child(id) DEFERRABLE INITIALLY DEFERRED);
CREATE TABLE child (id INTEGER PRIMARY KEY, parent REFERENCES parent(id));
CREATE TABLE log (what TEXT);
CREATE INDEX by_t ON plain (t COLLATE NOCASE, i DESC);
CREATE UNIQUE INDEX by_part ON plain (id) WHERE i > 0;
CREATE INDEX by_expression ON plain (lower(t) || 'x');
CREATE VIEW second AS SELECT * FROM first;
CREATE VIEW first AS SELECT id, t FROM plain -- and a comment
;
CREATE TRIGGER logs AFTER INSERT ON plain BEGIN INSERT INTO log VALUES ('fired; on ' || new.id); END;
CREATE TRIGGER instead INSTEAD OF INSERT ON first BEGIN SELECT CASE WHEN 1 THEN 2 END; END;
CREATE VIRTUAL TABLE words USING fts5(title, body, tokenize = 'porter');
CREATE VIRTUAL TABLE old_words USING fts4(body);
CREATE VIRTUAL TABLE places USING rtree(id, x0, x1, y0, y1);
"""
TEXTS = [
    "",
    "it's",
    "''",
    "a\0b",
    "\0",
    "a\rb",
    "a\r\nb",
    "\\r and \r",
    "\n",
    "a\nb\n;\n.quit\ngo\n/\n",
    '"double"',
    "back\\slash\\",
    "\\n \\u001f \\\\",
    "\x7f1.5\x7f",
    "X\x7f00",
    "\x1e\x1f",
    "\x1f",
    "\x1c",
    "\x01\x02\x03\x04",
    "]\x04[",
    "tab\t\x0b\x0c\b\x7f",
    "é€😀\ufeff\ufffe\uffff",
    "null",
    "NULL",
    "x'00'",
    "=1+1",
    "-- comment",
    "');DROP TABLE plain;--",
    "\\N",
    ",",
    " ",
]
REALS = [0.0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, math.inf, -math.inf]
REALS += [0.1, -0.1, 1 / 3, 66.580959, 0.44355406, 671238.853787, 1e22, 1e23, 9007199254740993.0, -1e-290, 1e15, 2.5]
INTEGERS = [0, -1, 2**63 - 1, -(2**63), 2**53 + 1, 10**15]
BLOBS = [b"", b"\0", b"'", bytes(range(256)), b"\xff\xfe", b"\x01", b"\x15\x22", b"\x131", b"\x0c"]
NO_UNICODE = [b"\xff", b"caf\xe9", b"\xed\xa0\x80", b"\xfe\xff\x00'\r\n", b'\xc3\x28 \\ " \n']


def torture(path: Path, encoding: str = "UTF-8") -> Path:
    made(path, SCHEMA, encoding=encoding)
    connection = apsw.Connection(str(path))
    with connection:
        for number, text in enumerate(TEXTS):
            connection.execute("INSERT INTO plain(i, t, x) VALUES (?, ?, ?)", (number, text, text))
            connection.execute("INSERT INTO no_rowid VALUES (?, ?, ?)", (text, number, text))
            connection.execute("INSERT OR IGNORE INTO mixed VALUES (?, ?, ?, ?)", (text, text[::-1], 0.1, text))
            connection.execute("INSERT INTO shadowed VALUES (?, ?, ?)", (text, number, text.encode()))
            connection.execute("INSERT INTO half_shadowed VALUES (?, ?)", (text, number))
            connection.execute("INSERT INTO one VALUES (?), (NULL)", (text,))
            connection.execute("INSERT INTO words VALUES (?, ?)", (f"title {number}", text + " running words"))
            connection.execute("INSERT INTO old_words VALUES (?)", (text + " running words",))
            connection.execute(
                'INSERT INTO "sel""ect \'quoted\', -- not a comment" VALUES (?, ?, ?, ?, ?)',
                (text, None, "", text, "x"),
            )
            connection.execute("INSERT INTO generated(a, b, c) VALUES (?, ?, ?)", (number, text, text))
        for value in [*REALS, *INTEGERS, *BLOBS, None]:
            connection.execute("INSERT INTO plain(i, r, t, b, n, x) VALUES (?1, ?1, ?1, ?1, ?1, ?1)", (value,))
            connection.execute("INSERT INTO strict_one(e) VALUES (?)", (value,))
            if value is not None:
                connection.execute("INSERT OR IGNORE INTO mixed VALUES (?1, ?1, ?1, ?1)", (value,))
        for data in NO_UNICODE if encoding == "UTF-8" else []:
            connection.execute("INSERT INTO plain(t, x) VALUES (CAST(?1 AS TEXT), CAST(?1 AS TEXT))", (data,))
            connection.execute("INSERT INTO no_rowid VALUES (CAST(?1 AS TEXT), 1, NULL)", (data,))
        connection.execute(
            "INSERT INTO plain(id, t) VALUES (-9223372036854775808, 'least'), (9223372036854775807, 'most')"
        )
        connection.execute("INSERT INTO descending VALUES (5, 'a'), (3, 'b'), (NULL, 'c')")
        connection.execute(
            "INSERT INTO counted VALUES (7, 'a'); DELETE FROM counted; INSERT INTO counted(t) VALUES ('b')"
        )
        connection.execute("INSERT INTO counted(id, t) VALUES (100, 'x'); DELETE FROM counted WHERE id = 100")
        connection.execute("INSERT INTO parent VALUES (1, 1), (2, 99); INSERT INTO child VALUES (1, 1), (3, 98)")
        connection.execute("INSERT INTO places VALUES (1, 0.5, 1.5, 2, 3), (-5, 1, 1, 1, 1)")
        connection.execute('INSERT INTO "select" VALUES (1, 2, 3)')
        connection.execute("DELETE FROM log")
        connection.execute("INSERT INTO log VALUES ('kept')")
    connection.execute("ANALYZE")
    connection.close()
    return path


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torture(tmp_path_factory.mktemp("torture") / "nasty.db")


async def test_a_loaded_dump_is_the_same_database(nasty: Path, tmp_path: Path) -> None:
    copy = loaded(await dumped(nasty), tmp_path / "loaded.db")

    ours, theirs = contents(nasty), contents(copy)
    assert "sqlite_stat4" in ours
    assert theirs.keys() == ours.keys()
    for table in ours:
        assert theirs[table] == ours[table], table
    assert schema(copy) == schema(nasty)
    assert _numbers(copy) == _numbers(nasty)


@pytest.mark.parametrize("encoding", ["UTF-16le", "UTF-16be"])
async def test_a_database_in_utf16_stays_one_and_keeps_what_is_no_unicode(encoding: str, tmp_path: Path) -> None:
    path = torture(tmp_path / "wide.db", encoding)
    broken = [b"\x00\xd8", b"\x41\x00\x00\xdc", b"\xff\xfe\x41\x00", b"\x00\x00\x41\x00", b"\xff\xff"]
    connection = apsw.Connection(str(path))
    for data in broken:
        connection.execute("INSERT INTO plain(t, x) VALUES (CAST(?1 AS TEXT), CAST(?1 AS TEXT))", (data,))
    connection.close()

    copy = loaded(await dumped(path), tmp_path / "loaded.db")

    ours, theirs = contents(path), contents(copy)
    assert "sqlite_stat4" in ours
    assert theirs == ours
    assert schema(copy) == schema(path)
    assert _numbers(copy) == _numbers(path)


async def test_virtual_tables_work_after_loading(nasty: Path, tmp_path: Path) -> None:
    copy = apsw.Connection(str(loaded(await dumped(nasty), tmp_path / "loaded.db")))

    assert copy.execute("SELECT count(*) FROM words WHERE words MATCH 'run'").get == len(TEXTS)
    # FTS4 itself ends at NUL.
    found = copy.execute("SELECT count(*) FROM old_words WHERE old_words MATCH 'running'").get
    assert found == len([text for text in TEXTS if "\0" not in text])
    assert copy.execute("SELECT id FROM places WHERE x0 < 0.7").get == 1
    copy.execute("INSERT INTO words(words) VALUES ('integrity-check')")
    assert copy.pragma("integrity_check") == "ok"
    copy.execute("INSERT INTO plain(t) VALUES ('new')")
    assert copy.execute("SELECT count(*) FROM log").get == 2
    copy.execute("INSERT INTO counted(t) VALUES ('next')")
    assert copy.last_insert_rowid() == 101
    copy.close()


async def test_rowids_are_kept_when_asked_for(nasty: Path, tmp_path: Path) -> None:
    connection = apsw.Connection(str(nasty))
    connection.execute("DELETE FROM half_shadowed WHERE oid % 3 = 0")
    connection.close()

    copy = loaded(await dumped(nasty, preserve_rowids=True), tmp_path / "loaded.db")

    for table, rowid in (("half_shadowed", "_rowid_"), ("one", "rowid"), ("descending", "rowid"), ("generated", "oid")):
        query = f"SELECT {rowid}, * FROM {table} ORDER BY 1"
        assert _fetched(copy, query) == _fetched(nasty, query)


async def test_json_parses_back_to_equal_values(nasty: Path) -> None:
    tables = parsed_json(await dumped(nasty, "json"))

    connection = apsw.Connection(str(nasty))
    for table, rows in tables.items():
        columns = [
            str(row[0])
            for row in connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden!=1", (table,))
        ]
        wanted = ",".join(
            f"CASE WHEN {it} COLLATE BINARY>='' AND {it}<x'' THEN json_array(hex({it})) ELSE {it} END"
            for it in map(name, columns)
        )
        expected = [
            [_jsoned(value) for value in row]
            for row in connection.execute(f"SELECT {wanted} FROM {name(table)} NOT INDEXED")
        ]
        assert [list(row) for row in rows] == [columns] * len(rows)
        assert sorted(map(_bits, rows)) == sorted(_bits(dict(zip(columns, row, strict=True))) for row in expected), (
            table
        )
    connection.close()
    assert "words" in tables
    assert "words_data" not in tables


async def test_csv_parses_back_to_equal_values(nasty: Path) -> None:
    archive = zipfile.ZipFile(io.BytesIO(await dumped(nasty, "csv")))

    files = json.loads(archive.read("manifest.json"))["files"]
    connection = apsw.Connection(str(nasty))
    assert {"plain", "one", "generated"} <= {*files.values()}
    for entry, table in files.items():
        assert_same_csv(connection, table, archive.read(entry))
    connection.close()


async def test_csv_of_one_column_tells_null_from_nothing(nasty: Path) -> None:
    data = await dumped(nasty, "csv", tables=["one"])

    lines = data.split(b"\r\n")
    assert lines[0] == b"only"
    assert lines[1:3] == [b'""', b"\\N"]
    assert b'"\\N"' in data


async def test_csv_that_a_spreadsheet_would_run_is_prefixed(nasty: Path) -> None:
    rows = parsed_csv(await dumped(nasty, "csv", tables=["one"], csv_safe=True))

    assert ["'=1+1"] in rows
    assert ["'-- comment"] in rows
    assert ["=1+1"] not in rows


def _numbers(path: Path) -> list[object]:
    connection = apsw.Connection(str(path))
    numbers = [connection.pragma(each) for each in ("user_version", "application_id", "encoding", "page_size")]
    connection.close()
    return numbers


def _fetched(path: Path, query: str) -> list[Any]:
    connection = apsw.Connection(str(path))
    rows: list[Any] = connection.execute(query).fetchall()
    connection.close()
    return rows


def _jsoned(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if isinstance(value, str):
        data = bytes.fromhex(value[2:-2])
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"$text_hex": data.hex()}
    return value


def _bits(row: dict[str, Any]) -> list[str]:
    return [struct.pack(">d", value).hex() if isinstance(value, float) else repr(value) for value in row.values()]
