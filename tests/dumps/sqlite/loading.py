"""Dumping, loading back with the stock sqlite3 command, and comparing by type and bytes."""

import csv
import io
import json
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw

from paddock.dumps.composing import Composer
from paddock.dumps.database_settings import SqliteDatabase
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.source import Rows, Table
from paddock.dumps.sqlite.source import FrozenSqlite, SqliteSource
from paddock.engines.children.quoting import quoted as name

AT = datetime(2026, 11, 16, 12, tzinfo=UTC)
_REAL = re.compile(r"-?[0-9]+\.[0-9]+([eE][-+]?[0-9]+)?")
# A value as it is stored: its type, and its bytes.
Stored = tuple[str, bytes]


def made(path: Path, sql: str, *then: tuple[str, Sequence[Any]], encoding: str = "UTF-8") -> Path:
    connection = apsw.Connection(str(path))
    connection.pragma("encoding", encoding)
    for _ in connection.execute(sql):
        pass
    for statement, bindings in then:
        connection.execute(statement, bindings)
    connection.close()
    return path


async def dumped(path: Path, format: Format = "sql", **options: Any) -> bytes:
    source = SqliteSource(SqliteDatabase(type="sqlite", path=path))
    frozen = await source.open(path, AT, DumpOptions(**options))
    try:
        return b"".join([chunk async for chunk in Composer(frozen, format, DumpOptions(**options)).chunks()])
    finally:
        await frozen.close()


async def all_rows(frozen: FrozenSqlite, table: Table, format: Format) -> list[tuple[Any, Rows]]:
    """Every chunk with its place; a place is what comes back from JSON."""
    chunks = []
    place = None
    while True:
        rows = await frozen.rows(table, format, place)
        chunks.append((place, rows))
        if rows.next is None:
            return chunks
        place = json.loads(json.dumps(rows.next))


def loaded(script: bytes, into: Path) -> Path:
    """By the command that people have, from a file, as they do. (`scripts` and CI install sqlite3.)"""
    command = shutil.which("sqlite3")
    assert command is not None, "The sqlite3 command is needed: install the package sqlite3."
    done = subprocess.run([command, "-bail", str(into)], input=script, capture_output=True, timeout=100, check=False)
    assert (done.returncode, done.stderr[:2000]) == (0, b"")
    return into


def contents(
    path: Path, prepare: Callable[[apsw.Connection], object] = lambda _: None
) -> dict[str, list[list[Stored]]]:
    """All rows of all tables that hold rows of their own, in the order of what they hold."""
    connection = apsw.Connection(str(path))
    prepare(connection)
    tables = connection.execute(
        "SELECT name FROM pragma_table_list WHERE schema='main' AND type IN ('table','shadow') AND name!='sqlite_schema'"
    ).fetchall()
    found = {str(table): _rows(connection, str(table)) for (table,) in tables}
    connection.close()
    return found


def _rows(connection: apsw.Connection, table: str) -> list[list[Stored]]:
    columns = [row[0] for row in connection.execute("SELECT name FROM pragma_table_xinfo(?)", (table,))]
    wanted = ",".join(
        f"typeof({it}),CASE WHEN {it}<'' THEN {it} ELSE CAST({it} AS BLOB) END"
        for it in (name(str(c)) for c in columns)
    )
    rows: list[Any] = connection.execute(f"SELECT {wanted} FROM {name(table)} NOT INDEXED").fetchall()
    return sorted([(row[at], _bytes(row[at + 1])) for at in range(0, len(row), 2)] for row in rows)


def _bytes(value: Any) -> bytes:
    if isinstance(value, float):
        return struct.pack(">d", value)
    return value if isinstance(value, bytes) else str(value).encode()


def schema(path: Path) -> list[Any]:
    connection = apsw.Connection(str(path))
    rows: list[Any] = connection.execute(
        "SELECT type, name, tbl_name, CAST(sql AS BLOB) FROM sqlite_schema ORDER BY type, name"
    ).fetchall()
    connection.close()
    return rows


def parsed_json(data: bytes) -> Any:
    """By Python's own reader, which must take every byte for UTF-8."""
    return json.loads(data.decode())


def parsed_csv(data: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(data.decode("utf-8", "surrogateescape"), newline="")))


def assert_same_csv(connection: apsw.Connection, table: str, data: bytes) -> None:
    """Every cell of a CSV, by the type and the bytes of the value that it is of."""
    columns = [
        str(row[0]) for row in connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden!=1", (table,))
    ]
    header, *lines = parsed_csv(data)
    assert [text.encode("utf-8", "surrogateescape") for text in header] == [text.encode() for text in columns]
    wanted = ",".join(
        f"typeof({it}),CASE WHEN typeof({it})='text' THEN CAST({it} AS BLOB) ELSE {it} END" for it in map(name, columns)
    )
    stored: list[Any] = connection.execute(f"SELECT {wanted} FROM {name(table)} NOT INDEXED").fetchall()
    null = "\\N" if len(columns) == 1 else ""
    wide = connection.pragma("encoding") != "UTF-8"
    expected = [[_cell(row[at], row[at + 1], null, wide=wide) for at in range(0, len(row), 2)] for row in stored]
    assert sorted([_number(text) for text in line] for line in lines) == sorted(expected), table


def _cell(type: str, value: Any, null: str, *, wide: bool) -> str:
    match type:
        case "null":
            return null
        case "real":
            return struct.pack(">d", value).hex()
        case "blob":
            return "\\x" + str(value.hex())
        case "text":
            text = value.decode("utf-16-le", "surrogatepass") if wide else value.decode("utf-8", "surrogateescape")
            return _number(str(text))
    return str(value)


def _number(text: str) -> str:
    """What looks like a real, by its bits: no two have the same text in every library."""
    return struct.pack(">d", float(text)).hex() if _REAL.fullmatch(text) else text
