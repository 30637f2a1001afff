"""Values in JSON and CSV against those that DuckDB answers when it is asked for each of them."""

import csv
import io
import json
import struct
import zipfile
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb

from paddock.engines.children.quoting import literal, quoted
from tests.dumps.duckdb.loading import as_text

NUMBERS = ("tinyint", "smallint", "integer", "bigint", "hugeint", "utinyint", "usmallint", "uinteger", "ubigint")
EXACT = frozenset({*NUMBERS, "uhugeint", "bignum", "varint", "decimal"})


class Value:
    """One value of the database, by what asks for it."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, source: str, value: str, type: Any) -> None:
        self._connection, self._source, self.value, self.type = connection, source, value, type

    def ask(self, form: str) -> Any:
        return self._connection.execute(f"SELECT {form.format(self.value)} FROM {self._source}").fetchall()[0][0]

    def inner(self, form: str, type: Any) -> "Value":
        return Value(self._connection, self._source, form.format(self.value), type)


def same(value: Value, found: Any) -> None:
    if value.ask("{} IS NULL"):
        assert found is None, value.value
        return
    match value.type.id:
        case "list" | "array":
            length = value.ask("len({})")
            assert len(found) == length
            for number, item in enumerate(found):
                same(value.inner(f"({{}})[{number + 1}]", value.type.children[0][1]), item)
        case "struct":
            assert list(found) == [name for name, _ in value.type.children]
            for name, type in value.type.children:
                same(value.inner(f"struct_extract({{}}, {_name(name)})", type), found[name])
        case "union":
            tag = value.ask("union_tag({})::VARCHAR")
            type = dict(value.type.children)[tag]
            assert list(found) == [tag]
            same(value.inner(f"union_extract({{}}, {_name(tag)})", type), found[tag])
        case "map":
            _same_map(value, found)
        case _:
            _same_scalar(value, found)


def _same_map(value: Value, found: Any) -> None:
    (_, key), (_, of) = value.type.children
    entries = list(found.items()) if isinstance(found, dict) else [(entry["key"], entry["value"]) for entry in found]
    assert len(entries) == value.ask("len(map_keys({}))")
    for number, (name, item) in enumerate(entries):
        at = value.inner(f"map_keys({{}})[{number + 1}]", key)
        if isinstance(found, dict):
            assert name == at.ask("({})::VARCHAR")
        else:
            same(at, name)
        same(value.inner(f"map_values({{}})[{number + 1}]", of), item)


def _same_scalar(value: Value, found: Any) -> None:
    match value.type.id:
        case "boolean":
            assert found is value.ask("{}")
        case id if id in EXACT:
            assert Decimal(found) == Decimal(value.ask("({})::VARCHAR"))
            assert not isinstance(found, str)
        case "double" | "float" as id:
            bits = int(value.ask("({})::BIT::VARCHAR"), 2)
            form = ">d" if id == "double" else ">f"
            (stored,) = struct.unpack(form, bits.to_bytes(struct.calcsize(form)))
            if stored != stored or stored in (float("inf"), float("-inf")):
                assert found == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(stored)]
            else:
                assert struct.pack(form, float(found)) == struct.pack(form, stored)
        case "blob":
            assert found == {"$hex": value.ask("hex({})")}
        case _ if str(value.type) == "JSON":
            assert found == parsed(value.ask("({})::VARCHAR"))
        case _:
            assert found == value.ask(as_text("{}", str(value.type)))


def parsed(text: str | bytes) -> Any:
    return json.loads(text, parse_float=Decimal)


def tables(connection: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, str]]:
    """As dumps name them, and as SQL does."""
    for schema, name in connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database()"
    ).fetchall():
        yield name if schema == "main" else f"{schema}.{name}", f"{quoted(schema)}.{quoted(name)}"


def assert_same_json(connection: duckdb.DuckDBPyConnection, data: bytes) -> None:
    known = dict(tables(connection))
    found = parsed(data)
    by_table = {next(iter(known)): found} if len(known) == 1 else found
    assert {*by_table} == {*known}
    for name, rows in by_table.items():
        columns = connection.execute(f"SELECT * FROM {known[name]}").description
        ids = [row[0] for row in connection.execute(f"SELECT rowid FROM {known[name]} ORDER BY rowid").fetchall()]
        for id, row in zip(ids, rows, strict=True):
            assert list(row) == [column[0] for column in columns]
            for column, type, *_ in columns:
                same(Value(connection, f"{known[name]} WHERE rowid = {id}", quoted(column), type), row[column])


def assert_same_csv(connection: duckdb.DuckDBPyConnection, data: bytes) -> None:
    known = dict(tables(connection))
    files = {next(iter(known)): data} if len(known) == 1 else _unzipped(data)
    assert {*files} == {*known}
    for name, content in files.items():
        columns = connection.execute(f"SELECT * FROM {known[name]}").description
        header, *lines = csv.reader(io.StringIO(content.decode(), newline=""))
        assert header == [column[0] for column in columns]
        asked = [as_text(quoted(column[0]), str(column[1])) for column in columns]
        if len(columns) == 1:
            asked = [f"CASE WHEN {quoted(columns[0][0])} IS NULL THEN '\\N' ELSE {asked[0]} END"]
        expected = connection.execute(f"SELECT {', '.join(asked)} FROM {known[name]} ORDER BY rowid").fetchall()
        assert lines == [list(row) for row in expected]


def _unzipped(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        files = json.loads(archive.read("manifest.json"))["files"]
        return {table: archive.read(entry) for entry, table in files.items()}


def _name(name: str) -> str:
    """Inside of a form."""
    return literal(name).replace("{", "{{").replace("}", "}}")
