"""Dumps a DuckDB file through the source, and reads what came out with DuckDB, `json` and `csv`."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from paddock.dumps.composing import Composer
from paddock.dumps.database_settings import DuckdbDatabase
from paddock.dumps.duckdb.source import DuckdbSource
from paddock.dumps.model import DumpOptions, Format
from paddock.engines.children.quoting import quoted

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def nothing(_done: int, _total: int) -> None:
    pass


def source(path: Path) -> DuckdbSource:
    return DuckdbSource(DuckdbDatabase(type="duckdb", path=path))


async def dumped(path: Path, format: Format, options: DumpOptions | None = None, *, single: bool = False) -> bytes:
    """All of it, from a copy."""
    options = options or DumpOptions()
    copy = path.with_name(f"{path.name}.copy")
    await source(path).copy(copy, nothing)
    frozen = await source(path).open(copy, AT, options)
    try:
        composer = Composer(frozen, format, options, single=single)
        return b"".join([chunk async for chunk in composer.chunks()])
    finally:
        await frozen.close()


def loaded(script: bytes) -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:")
    connection.execute("SET TimeZone = 'America/New_York'")
    connection.execute(script.decode())
    return connection


def tables(connection: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return connection.execute(
        "SELECT schema_name, table_name FROM duckdb_tables() WHERE database_name = current_database() ORDER BY ALL"
    ).fetchall()


def content(connection: duckdb.DuckDBPyConnection, schema: str, table: str) -> tuple[list[Any], list[Any]]:
    """Types, and values in the order of rows: text for people, and a hash over the bits."""
    path = f"{quoted(schema)}.{quoted(table)}"
    found = connection.execute(f"SELECT * FROM {path}")
    columns = [(column[0], str(column[1])) for column in found.description]
    texts = ", ".join(f"{_exact(name, type)}" for name, type in columns)
    return columns, connection.execute(f"SELECT {texts} FROM {path}").fetchall()


def _exact(name: str, type: str) -> str:
    column = quoted(name)
    if type in {"DOUBLE", "FLOAT"}:
        return f"{column}::BIT::VARCHAR"
    if type == "GEOMETRY":
        return f"hex(st_aswkb({column}))"
    return f"CASE WHEN {column} IS NOT NULL THEN [{column}::VARCHAR, hash({column})::VARCHAR, typeof({column})] END"


def catalog(connection: duckdb.DuckDBPyConnection) -> dict[str, list[Any]]:
    """All that is not rows, as DuckDB tells of it."""
    here = "database_name = current_database()"
    queries = {
        "schemas": f"SELECT schema_name FROM duckdb_schemas() WHERE {here} ORDER BY ALL",
        "tables": f"SELECT schema_name, table_name, comment, sql FROM duckdb_tables() WHERE {here} ORDER BY ALL",
        "columns": "SELECT schema_name, table_name, column_name, data_type, column_default, is_nullable, comment "
        f"FROM duckdb_columns() WHERE {here} ORDER BY ALL",
        "constraints": "SELECT schema_name, table_name, constraint_type, constraint_text, constraint_column_names, "
        f"referenced_table, referenced_column_names FROM duckdb_constraints() WHERE {here} ORDER BY ALL",
        "views": f"SELECT schema_name, view_name, comment, sql FROM duckdb_views() WHERE {here} AND NOT internal "
        "ORDER BY ALL",
        "indexes": "SELECT schema_name, index_name, table_name, is_unique, comment, sql FROM duckdb_indexes() "
        f"WHERE {here} ORDER BY ALL",
        "types": "SELECT schema_name, type_name, logical_type, labels, comment FROM duckdb_types() "
        f"WHERE {here} AND NOT internal ORDER BY ALL",
        "sequences": "SELECT schema_name, sequence_name, min_value, max_value, increment_by, cycle, comment, sql "
        f"FROM duckdb_sequences() WHERE {here} ORDER BY ALL",
        "macros": "SELECT schema_name, function_name, function_type, parameters, parameter_types, macro_definition, "
        f"comment FROM duckdb_functions() WHERE {here} AND NOT internal ORDER BY ALL",
    }
    return {name: connection.execute(query).fetchall() for name, query in queries.items()}


def assert_same(original: Path, script: bytes) -> None:
    with duckdb.connect(str(original), read_only=True) as was, loaded(script) as now:
        was.execute("SET TimeZone = 'America/New_York'")
        for name, found in catalog(was).items():
            assert catalog(now)[name] == found, name
        assert tables(now) == tables(was)
        for schema, table in tables(was):
            assert content(now, schema, table) == content(was, schema, table), (schema, table)


def as_text(value: str, type: str) -> str:
    """What asks for a value's text, as CSV has it; '' for NULL."""
    match type:
        case "BLOB":
            value = f"'\\x' || hex({value})"
        case "GEOMETRY":
            value = f"'\\x' || hex(st_aswkb({value}))"
        case "TIMESTAMP WITH TIME ZONE":
            value = f"coalesce(make_timestamp(epoch_us({value}))::VARCHAR || '+00', {value}::VARCHAR)"
        case "TIME WITH TIME ZONE":
            value = f"replace({value}::VARCHAR, '00:00:00-00:01', '00:00:00-00:00:01')"
    return f"coalesce({value}::VARCHAR, '')"


def made(path: Path, statements: Sequence[str]) -> Path:
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"ATTACH '{path}' AS made (STORAGE_VERSION 'latest')")
        connection.execute("USE made")
        for statement in statements:
            connection.execute(statement)
    return path


def parsed(data: bytes) -> Any:
    return json.loads(data, parse_float=str, parse_int=str, parse_constant=_refused)


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
