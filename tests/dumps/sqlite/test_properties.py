"""Schemas and rows that nobody thought of."""

import struct
import tempfile
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.dumps.sqlite.quoting import fold, name
from tests.dumps.sqlite.loading import contents, dumped, loaded, parsed_json, schema

NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=8).filter(
    lambda text: not fold(text).startswith("sqlite_")
)
TYPES = st.sampled_from(["", "INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "VARCHAR(10) COLLATE NOCASE", "DATE"])
TEXTS = st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
MARKS = st.text(st.sampled_from("\0\r\n\\\"'[],\x01\x02\x03\x04\x1c\x1e\x1fuX1."), max_size=8)
VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**9), max_value=10**9).map(float),
    TEXTS,
    MARKS,
    st.binary(max_size=12),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, str, list[list[Any]]]:
    """A table's name, its statement, and rows for it."""
    table = draw(NAMES)
    columns = draw(st.lists(NAMES, min_size=1, max_size=5, unique_by=fold))
    types = [draw(TYPES) for _ in columns]
    spelled = [f"{name(column)} {type}" for column, type in zip(columns, types, strict=True)]
    key = draw(st.sampled_from(["none", "integer", "without rowid"]))
    if key == "integer" and not any(fold(column) == "id" for column in columns):
        spelled.append("id INTEGER PRIMARY KEY")
    end = ""
    if key == "without rowid":
        parts = [f"{name(column)}{draw(st.sampled_from(['', ' DESC', ' COLLATE NOCASE']))}" for column in columns[:2]]
        spelled.append(f"PRIMARY KEY ({', '.join(parts)})")
        end = " WITHOUT ROWID"
    rows = draw(st.lists(st.lists(VALUES, min_size=len(columns), max_size=len(columns)), max_size=12))
    listed = ", ".join(map(name, columns))
    insert = f"INSERT OR IGNORE INTO {name(table)}({listed}) VALUES ({', '.join('?' * len(columns))})"
    return f"CREATE TABLE {name(table)} ({', '.join(spelled)}){end}", insert, rows


@pytest.mark.slow
@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(tables(), min_size=1, max_size=3, unique_by=lambda table: fold(table[0].split(" (")[0])), st.booleans())
async def test_any_database_loads_back_the_same(made: list[tuple[str, str, list[list[Any]]]], wide: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.db"
        connection = apsw.Connection(str(path))
        connection.pragma("synchronous", "off")
        connection.pragma("encoding", "UTF-16le" if wide else "UTF-8")
        for statement, insert, rows in made:
            connection.execute(statement)
            connection.executemany(insert, rows)
        connection.close()

        copy = loaded(await dumped(path), Path(folder) / "loaded.db")
        assert contents(copy) == contents(path)
        assert schema(copy) == schema(path)
        _same_as_json(path, parsed_json(await dumped(path, "json")))


def _same_as_json(path: Path, found: Any) -> None:
    connection = apsw.Connection(str(path))
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY rowid")]
    by_table = {tables[0]: found} if len(tables) == 1 else found
    assert list(by_table) == tables
    for table, rows in by_table.items():
        expected: list[Any] = connection.execute(f"SELECT * FROM {name(table)} NOT INDEXED").fetchall()
        got = [[_value(value) for value in row.values()] for row in rows]
        assert sorted(map(repr, got)) == sorted(repr([_value(value) for value in row]) for row in expected)
    connection.close()


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return bytes.fromhex(value["$hex"])
    return struct.pack(">d", value) if isinstance(value, float) else value
