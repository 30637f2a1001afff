"""Schemas and rows that nobody thought of."""

import struct
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paddock.dumps.sqlite.quoting import fold
from paddock.engines.children.quoting import quoted as name
from tests.dumps.sqlite.loading import assert_same_csv, contents, dumped, loaded, parsed_json, schema
from tests.examples import examples


@dataclass(frozen=True)
class Raw:
    """Text that need not be Unicode."""

    data: bytes


@dataclass(frozen=True)
class Table:
    name: str
    statements: list[str]
    columns: list[str]
    rows: list[list[Any]]


NAMES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=8).filter(
    lambda text: not fold(text).startswith("sqlite_")
)
TYPES = st.sampled_from(["", "INTEGER", "TEXT", "REAL", "BLOB", "NUMERIC", "VARCHAR(10) COLLATE NOCASE", "DATE"])
STRICT_TYPES = st.sampled_from(["INTEGER", "TEXT", "REAL", "BLOB", "ANY"])
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
    st.binary(max_size=12).map(lambda data: Raw(data)),
)


# Of a column. Nothing that a number's text is part of: the command that loads it prints others.
GENERATED = st.sampled_from(["TEXT AS (typeof({}))", "INTEGER AS ({} IS NULL) STORED"])
INDEXES = st.sampled_from(
    ["INDEX {} ON {}({} DESC)", "UNIQUE INDEX {} ON {}({} COLLATE NOCASE)", "INDEX {} ON {}(typeof({}))"]
)
FOREIGN = st.sampled_from(["ON DELETE CASCADE", "ON UPDATE SET NULL DEFERRABLE INITIALLY DEFERRED"])


@st.composite
def tables(draw: st.DrawFn) -> Table:
    table = draw(NAMES)
    columns = draw(st.lists(NAMES, min_size=1, max_size=5, unique_by=fold))
    strict = draw(st.booleans())
    types = [draw(STRICT_TYPES if strict else TYPES) for _ in columns]
    spelled = [f"{name(column)} {type}" for column, type in zip(columns, types, strict=True)]
    taken = {fold(column) for column in columns}
    for extra in draw(st.lists(NAMES.filter(lambda text: fold(text) not in taken), max_size=2, unique_by=fold)):
        spelled.append(f"{name(extra)} {draw(GENERATED).format(name(columns[0]))}")
        taken.add(fold(extra))
    key = draw(st.sampled_from(["none", "integer", "without rowid"]))
    if key == "integer" and "id" not in taken:
        spelled.append("id INTEGER PRIMARY KEY")
    ends = ["STRICT"] if strict else []
    if key == "without rowid":
        parts = [f"{name(column)}{draw(st.sampled_from(['', ' DESC', ' COLLATE NOCASE']))}" for column in columns[:2]]
        spelled.append(f"PRIMARY KEY ({', '.join(parts)})")
        ends.append("WITHOUT ROWID")
    if draw(st.booleans()):
        # Of itself or of another, which need not be there.
        parent = draw(st.just(table) | NAMES)
        spelled.append(
            f"FOREIGN KEY ({name(columns[-1])}) REFERENCES {name(parent)}({name(columns[0])}) {draw(FOREIGN)}"
        )
    made = [f"CREATE TABLE {name(table)} ({', '.join(spelled)}) {', '.join(ends)}"]
    for form in draw(st.lists(INDEXES, max_size=2, unique=True)):
        # Behind no table's name.
        index = name(f"{table}\N{FULL BLOCK}{len(made)}")
        made.append(f"CREATE {form.format(index, name(table), name(draw(st.sampled_from(columns))))}")
    rows = draw(st.lists(st.lists(VALUES, min_size=len(columns), max_size=len(columns)), max_size=12))
    return Table(table, made, columns, rows)


def insert(connection: apsw.Connection, table: Table, *, wide: bool) -> None:
    """What the table does not take is left out."""
    for row in table.rows:
        marks = ["CAST(? AS TEXT)" if isinstance(value, Raw) and not wide else "?" for value in row]
        bindings = [value.data if isinstance(value, Raw) else value for value in row]
        listed = ", ".join(map(name, table.columns))
        with suppress(apsw.ConstraintError):
            connection.execute(f"INSERT INTO {name(table.name)}({listed}) VALUES ({', '.join(marks)})", bindings)


@pytest.mark.slow
@pytest.mark.examples
@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(tables(), min_size=1, max_size=3, unique_by=lambda table: fold(table.name)), st.booleans())
async def test_any_database_loads_back_the_same(made: list[Table], wide: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "any.db"
        connection = apsw.Connection(str(path))
        connection.pragma("synchronous", "off")
        connection.pragma("encoding", "UTF-16le" if wide else "UTF-8")
        for table in made:
            for statement in table.statements:
                connection.execute(statement)
            insert(connection, table, wide=wide)

        copy = loaded(await dumped(path), Path(folder) / "loaded.db")
        assert contents(copy) == contents(path)
        assert schema(copy) == schema(path)
        _same_as_json(connection, parsed_json(await dumped(path, "json")), "utf-16-le" if wide else "utf-8")
        for table in made:
            assert_same_csv(connection, table.name, await dumped(path, "csv", tables=[table.name]))
        connection.close()


def _same_as_json(connection: apsw.Connection, found: Any, codec: str) -> None:
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type='table' ORDER BY rowid")]
    by_table = {tables[0]: found} if len(tables) == 1 else found
    assert list(by_table) == tables
    for table, rows in by_table.items():
        columns = [
            str(row[0])
            for row in connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden!=1", (table,))
        ]
        wanted = ",".join(
            f"CASE typeof({it}) WHEN 'text' THEN json_array(hex({it})) ELSE {it} END" for it in map(name, columns)
        )
        stored: list[Any] = connection.execute(f"SELECT {wanted} FROM {name(table)} NOT INDEXED").fetchall()
        expected = [[_stored(value, codec) for value in row] for row in stored]
        assert [list(row) for row in rows] == [columns] * len(rows)
        assert sorted(repr([_bits(value) for value in row.values()]) for row in rows) == sorted(map(repr, expected))


def _stored(value: Any, codec: str) -> Any:
    """A text comes as its bytes, in an array."""
    if isinstance(value, bytes):
        return {"$hex": value.hex()}
    if isinstance(value, str):
        data = bytes.fromhex(value[2:-2])
        try:
            return data.decode(codec)
        except UnicodeDecodeError:
            return {"$text_hex": data.hex()}
    return _bits(value)


def _bits(value: Any) -> Any:
    return struct.pack(">d", value) if isinstance(value, float) else value
