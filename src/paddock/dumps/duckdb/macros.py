"""Macros as statements. What their parameters default to is told by EXPORT DATABASE alone, so a clone without rows is
exported to a temporary folder; there parameters are not quoted, so their names come from the catalog."""

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import duckdb

from paddock.dumps.duckdb import connecting
from paddock.dumps.duckdb.catalog import CreateStatement, comment, display_name, items_of, outside, written
from paddock.engines.children.quoting import literal, quoted
from paddock.jobs.errors import PermanentRunnerError

_MACROS = """
SELECT schema_name, function_name, function_type, comment, parameters, macro_definition
FROM duckdb_functions()
WHERE database_name = ? AND NOT internal AND function_type IN ('macro', 'table_macro')
"""

# The names of its parameters, and what it does with them.
_Overload = tuple[list[str], str]


def read(connection: duckdb.DuckDBPyConnection, file: Path, database: str) -> list[CreateStatement]:
    found: dict[tuple[str, str, str, str | None], list[_Overload]] = {}
    for schema, name, kind, said, names, definition in connection.execute(
        _MACROS.replace("?", literal(database))
    ).fetchall():
        found.setdefault((schema, name, kind, said), []).append((names, definition))
    if not found:
        return []
    text = _exported(file, database)
    made = [
        _macro(schema, name, kind == "table_macro", said, overloads, text)
        for (schema, name, kind, said), overloads in found.items()
    ]
    return sorted(made, key=lambda one: (one.name, one.sql))


def _exported(file: Path, database: str) -> str:
    folder = Path(tempfile.mkdtemp(prefix="paddock-macros-"))
    connection = connecting.scratch()
    try:
        connecting.attach(connection, file, database)
        # Tables may use macros that the clone does not have yet.
        connection.execute(f"USE {quoted(database)}")
        connection.execute("ATTACH ':memory:' AS \"#\"")
        connection.execute(f"SET allowed_directories = [{literal(str(folder))}]")
        connecting.lock(connection)
        connection.execute(f'COPY FROM DATABASE {quoted(database)} TO "#" (SCHEMA)')
        connection.execute(f'EXPORT DATABASE "#" TO {literal(str(folder / "all"))}')
        return (folder / "all" / "schema.sql").read_text()
    finally:
        connection.close()
        shutil.rmtree(folder, ignore_errors=True)


def _macro(
    schema: str, name: str, is_table: bool, said: str | None, overloads: list[_Overload], exported: str
) -> CreateStatement:
    table = "TABLE " if is_table else ""
    parts = [
        f"({', '.join(parameters)}) AS {table}({definition})"
        for parameters, (_, definition) in zip(
            _parameters(schema, name, is_table, overloads, exported), overloads, strict=True
        )
    ]
    path = written(schema, name)
    return CreateStatement(
        "macro",
        display_name(schema, name),
        f"CREATE MACRO {path} {', '.join(parts)};",
        later=comment(f"MACRO {table}".strip(), path, said),
    )


def _parameters(schema: str, name: str, is_table: bool, overloads: list[_Overload], exported: str) -> list[list[str]]:
    """Of each overload, with types and defaults: what is exported after the name is kept."""
    for items in _exported_items(schema, name, is_table, exported):
        if [len(names) for names, _ in overloads] == [len(own) for own in items] and all(
            item.startswith(parameter)
            for (names, _), own in zip(overloads, items, strict=True)
            for parameter, item in zip(names, own, strict=True)
        ):
            return [
                [f"{quoted(parameter)}{item[len(parameter) :]}" for parameter, item in zip(names, own, strict=True)]
                for (names, _), own in zip(overloads, items, strict=True)
            ]
    raise PermanentRunnerError(
        f"DuckDB does not export the macro '{display_name(schema, name)}' in a form that can be read back.",
        code="not_writable",
        hint="Dump as JSON or CSV, or drop the macro.",
    )


def _exported_items(schema: str, name: str, is_table: bool, exported: str) -> Iterator[list[list[str]]]:
    """DuckDB quotes a name only where it must; and other statements are not quoted right, so this looks for the name."""
    prefixes = [""] if schema == "main" else [f"{schema}.", f"{quoted(schema)}."]
    heads = "|".join(re.escape(f"{prefix}{own}") for prefix in prefixes for own in (name, quoted(name)))
    for head in re.finditer(rf"^CREATE MACRO (?:{heads}) (?=\()", exported, re.MULTILINE):
        text = exported[head.end() :]
        plain = outside(text)
        try:
            items, bodies = _overloads(text, plain)
        except (ValueError, IndexError):
            continue
        if all(body == is_table for body in bodies):
            yield items


def _overloads(text: str, plain: str) -> tuple[list[list[str]], list[bool]]:
    """`(a, b := 5) AS (...), (a) AS TABLE (...);`: parameters, and whether it is a table."""
    items, tables, at = [], [], 0
    while True:
        end = _closing(plain, at)
        items.append([item for item in items_of(text[at : end + 1]) if item])
        body = plain.index("(", end + 1)
        tables.append("TABLE" in plain[end:body])
        at = _closing(plain, body) + 1
        if plain[at] != ",":
            return items, tables
        at = plain.index("(", at)


def _closing(plain: str, opening: int) -> int:
    depth = 0
    for at in range(opening, len(plain)):
        depth += (plain[at] in "([{") - (plain[at] in ")]}")
        if depth == 0:
            return at
    raise ValueError("parentheses that do not close")
