"""Dumps of DuckDB: SQL loaded into a scratch file."""

import ast
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import duckdb

from paddock.dumps.duckdb import connecting
from paddock.dumps.duckdb.catalog import display_name
from paddock.dumps.verifying.findings import NotWhole, Told
from paddock.dumps.verifying.reading import DumpFile
from paddock.dumps.verifying.sqlite import OnlyRows
from paddock.dumps.verifying.statements import DUCKDB, stretches
from paddock.engines.children.quoting import literal, quoted

# A scratch database may be larger than what stays in memory of it.
MEMORY = 1 << 30
_CALLED = re.compile(rb"-- DuckDB [^,\n]*, database ('[^\n]*'|\"[^\n]*\")\n")


def load(file: DumpFile, tables: Mapping[str, int], told: Told) -> dict[str, int | None]:
    with tempfile.TemporaryDirectory(prefix="paddock-verify-") as folder, file.plain(told) as stream:
        connection = _scratch(Path(folder) / "scratch.duckdb", _called(file.head()))
        try:
            done = 0
            for stretch in stretches(stream, DUCKDB):
                try:
                    connection.execute(stretch.decode())
                except (duckdb.Error, UnicodeDecodeError) as problem:
                    said = str(problem).split("\n", 1)[0]
                    if isinstance(problem, duckdb.CatalogException) and not _tables(connection):
                        raise OnlyRows from None
                    raise NotWhole(f"{file.path} does not load: {said} (after byte {done:,} of its text).") from None
                done += len(stretch)
            there = _tables(connection)
            return {table: _count(connection, there[table]) if table in there else None for table in tables}
        finally:
            connection.close()


def _scratch(path: Path, name: str) -> duckdb.DuckDBPyConnection:
    """Locked: what the file names outside of the database is not reached. Of the newest kind: what it may hold."""
    connection = connecting.scratch()
    try:
        connection.execute(f"ATTACH {literal(str(path))} AS {quoted(name)} (TYPE duckdb, STORAGE_VERSION 'latest')")
        connection.execute(f"USE {quoted(name)}")
        connection.execute(f"SET memory_limit = '{MEMORY // 1000}kB'")
        connecting.lock(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _tables(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """As a dump names them, and as SQL does."""
    rows = connection.execute("SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal").fetchall()
    return {display_name(schema, table): f"{quoted(schema)}.{quoted(table)}" for schema, table in rows}


def _called(head: bytes) -> str:
    """As the database called itself: its views may do so too."""
    found = _CALLED.match(head)
    try:
        return str(ast.literal_eval(found[1].decode())) if found else "scratch"
    except (ValueError, SyntaxError):
        return "scratch"


def _count(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    [(rows,)] = connection.execute(f"SELECT count(*) FROM {table}").fetchall()  # noqa: S608  quoted
    return int(rows)
