"""What a DuckDB database holds besides rows, as statements that make it again.

DuckDB's own texts are taken where they are right. They are not for: sequences (names are not quoted), keys to the own
table (left out), parameters of macros (defaults are shown by EXPORT only, names are not quoted), types (not shown).
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from paddock.dumps.duckdb import types
from paddock.dumps.duckdb.rendering import DuckdbColumn, Stored
from paddock.engines.children.quoting import literal, quoted
from paddock.jobs.errors import PermanentRunnerError


@dataclass(frozen=True, slots=True)
class CreateStatement:
    """One statement that makes something. `table`: the one that it makes or belongs to."""

    kind: str
    name: str
    sql: str
    table: str | None = None
    # What must be done when all else is there: comments, a sequence's last step.
    later: Sequence[str] = ()


def display_name(schema: str, name: str) -> str:
    return name if schema == "main" else f"{schema}.{name}"


def written(schema: str, name: str) -> str:
    return quoted(name) if schema == "main" else f"{quoted(schema)}.{quoted(name)}"


def comment(kind: str, name: str, text: str | None) -> list[str]:
    return [] if text is None else [f"COMMENT ON {kind} {name} IS {text_literal(text)};"]


def text_literal(text: str) -> str:
    if "\0" in text or "\r" in text:
        raise PermanentRunnerError(
            "A comment or a name in this database holds a NUL or a carriage return, which SQL cannot write.",
            code="not_writable",
        )
    return literal(text)


@dataclass(frozen=True, slots=True)
class Key:
    """Both tables as they are shown; they are always in one schema."""

    table: str
    parent: str
    sql: str


class Catalog:
    def __init__(self, connection: duckdb.DuckDBPyConnection, database: str) -> None:
        self._connection = connection
        self._database = database
        self.keys = self._keys()

    def tables(self) -> list[Stored]:
        found = self._all(
            "SELECT schema_name, table_name, estimated_size, sql FROM duckdb_tables() WHERE database_name = ? "
            "AND NOT internal AND NOT temporary ORDER BY schema_name <> 'main', schema_name, table_name"
        )
        return [self._table(schema, name, rows, sql) for schema, name, rows, sql in found]

    def made(self, names: Collection[str], macros: Sequence[CreateStatement]) -> list[CreateStatement]:
        """All but the rows, for these tables. A key to a table that is left out is left out too."""
        everything = [
            *self._schemas(),
            *self._types(),
            *self._sequences(),
            *macros,
            *self._created(names),
            *self._views(),
            *self._indexes(),
        ]
        return [made for made in everything if made.table is None or made.table in names]

    def _all(self, sql: str) -> list[tuple[Any, ...]]:
        """Not by a parameter: for each, the driver looks for modules that are not there."""
        return self._connection.execute(sql.replace("?", literal(self._database), 1)).fetchall()

    def _schemas(self) -> list[CreateStatement]:
        found = self._all(
            "SELECT schema_name FROM duckdb_schemas() WHERE database_name = ? AND NOT internal AND schema_name <> 'main' "
            "ORDER BY ALL"
        )
        return [CreateStatement("schema", name, f"CREATE SCHEMA {quoted(name)};") for (name,) in found]

    def _types(self) -> list[CreateStatement]:
        found = self._all(
            "SELECT schema_name, type_name, comment FROM duckdb_types() WHERE database_name = ? AND NOT internal "
            "ORDER BY ALL"
        )
        return [
            CreateStatement(
                "type",
                display_name(schema, name),
                f"CREATE TYPE {written(schema, name)} AS {self._type(schema, name)};",
                later=comment("TYPE", written(schema, name), said),
            )
            for schema, name, said in found
        ]

    def _type(self, schema: str, name: str) -> str:
        path = f"{quoted(self._database)}.{quoted(schema)}.{quoted(name)}"
        return str(self._connection.execute(f"SELECT typeof(NULL::{path})").fetchall()[0][0])

    def _sequences(self) -> list[CreateStatement]:
        found = self._all(
            "SELECT schema_name, sequence_name, comment, min_value, max_value, increment_by, cycle, sql "
            "FROM duckdb_sequences() WHERE database_name = ? AND NOT temporary ORDER BY ALL"
        )
        return [_sequence(*row) for row in found]

    def _keys(self) -> list[Key]:
        found = self._all(
            "SELECT schema_name, table_name, referenced_table, constraint_column_names, referenced_column_names "
            "FROM duckdb_constraints() WHERE database_name = ? AND constraint_type = 'FOREIGN KEY' "
            "ORDER BY schema_name, table_name, constraint_index"
        )
        return [
            Key(
                display_name(schema, table),
                display_name(schema, parent),
                _foreign_key(written(schema, parent), own, its),
            )
            for schema, table, parent, own, its in found
        ]

    def _table(self, schema: str, name: str, rows: int, sql: str) -> Stored:
        path = f"{quoted(self._database)}.{quoted(schema)}.{quoted(name)}"
        described = self._connection.execute(f"SELECT * FROM {path} LIMIT 0").description  # noqa: S608  quoted
        # Which are generated, only the text of the table tells; columns come first in it.
        columns = [
            DuckdbColumn(column[0], types.read(column[1]), " GENERATED ALWAYS AS(" in outside(item))
            for column, item in zip(described, items_of(sql), strict=False)
        ]
        own = any(key.table == key.parent == display_name(schema, name) for key in self.keys)
        return Stored(schema, name, columns, rows, own)

    def _created(self, names: Collection[str]) -> list[CreateStatement]:
        found = self._all(
            "SELECT schema_name, table_name, comment, sql FROM duckdb_tables() "
            "WHERE database_name = ? AND NOT internal AND NOT temporary ORDER BY schema_name, table_name"
        )
        comments = self._column_comments()
        return [
            CreateStatement(
                "table",
                display_name(schema, name),
                _table(sql, self._keys_of(display_name(schema, name), names)),
                display_name(schema, name),
                [*comment("TABLE", written(schema, name), said), *comments.get((schema, name), [])],
            )
            for schema, name, said, sql in found
        ]

    def _keys_of(self, table: str, names: Collection[str]) -> list[str | None]:
        return [key.sql if key.parent in names else None for key in self.keys if key.table == table]

    def _views(self) -> list[CreateStatement]:
        found = self._all(
            "SELECT schema_name, view_name, comment, sql FROM duckdb_views() "
            "WHERE database_name = ? AND NOT internal AND NOT temporary ORDER BY ALL"
        )
        comments = self._column_comments()
        return [
            CreateStatement(
                "view",
                display_name(schema, name),
                sql,
                later=[*comment("VIEW", written(schema, name), said), *comments.get((schema, name), [])],
            )
            for schema, name, said, sql in found
        ]

    def _indexes(self) -> list[CreateStatement]:
        found = self._all(
            "SELECT schema_name, index_name, table_name, comment, sql FROM duckdb_indexes() "
            "WHERE database_name = ? AND sql IS NOT NULL ORDER BY ALL"
        )
        return [
            CreateStatement(
                "index",
                display_name(schema, name),
                sql,
                display_name(schema, table),
                comment("INDEX", written(schema, name), said),
            )
            for schema, name, table, said, sql in found
        ]

    def _column_comments(self) -> dict[tuple[str, str], list[str]]:
        found = self._all(
            "SELECT schema_name, table_name, column_name, comment FROM duckdb_columns() "
            "WHERE database_name = ? AND NOT internal AND comment IS NOT NULL ORDER BY ALL"
        )
        comments: dict[tuple[str, str], list[str]] = {}
        for schema, table, column, said in found:
            name = f"{written(schema, table)}.{quoted(column)}"
            comments.setdefault((schema, table), []).extend(comment("COLUMN", name, said))
        return comments


def _sequence(
    schema: str, name: str, said: str | None, least: int, most: int, step: int, cycle: bool, sql: str
) -> CreateStatement:
    """It goes on where it was. One that has come to its end is set to its last value, which is then taken."""
    found = re.search(r" START (-?\d+) (?:NO )?CYCLE;$", sql)
    assert found is not None, sql
    following = int(found[1])
    ended = not least <= following <= most
    path = written(schema, name)
    made = (
        f"CREATE SEQUENCE {path} INCREMENT BY {step} MINVALUE {least} MAXVALUE {most} "
        f"START {following - step if ended else following} {'CYCLE' if cycle else 'NO CYCLE'};"
    )
    later = comment("SEQUENCE", path, said)
    if ended:
        later.append(f"SELECT nextval({literal(path)});")
    return CreateStatement("sequence", display_name(schema, name), made, later=later)


def _foreign_key(parent: str, own: Sequence[str], its: Sequence[str]) -> str:
    return f"FOREIGN KEY ({', '.join(map(quoted, own))}) REFERENCES {parent} ({', '.join(map(quoted, its))})"


def _table(sql: str, keys: Sequence[str | None]) -> str:
    """DuckDB's text with its foreign keys written anew, each where it was: those to the table itself are blank there.
    None: one that is left out."""
    written_anew = iter(keys)
    items = [
        next(written_anew, None) if item == "" or item.startswith("FOREIGN KEY (") else item for item in items_of(sql)
    ]
    return f"{sql[: _opening(sql) + 1]}{', '.join(item for item in items if item is not None)});"


def items_of(sql: str) -> list[str]:
    """What stands in the first parentheses, at its commas."""
    opening = _opening(sql)
    plain = outside(sql)
    items, begin, depth = [], opening + 1, 0
    for at in range(opening, len(sql)):
        if plain[at] in "([{":
            depth += 1
        elif plain[at] in ")]}":
            depth -= 1
        if depth == 0 or (depth == 1 and plain[at] == ","):
            items.append(sql[begin:at].strip())
            begin = at + 1
        if depth == 0:
            break
    return items


def _opening(sql: str) -> int:
    return outside(sql).index("(")


def outside(sql: str) -> str:
    """The text with what is quoted blanked out, so that places stay the same."""
    return re.sub(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"", lambda found: "_" * len(found[0]), sql)


def refuse_unknown(table: Stored) -> None:
    for column in table.columns:
        for type in column.type.walk():
            if type.id not in types.KNOWN:
                raise PermanentRunnerError(
                    f"Column '{column.name}' of table '{table.display_name}' has the type {type.sql}, which a dump cannot "
                    "write exactly.",
                    code="unsupported_type",
                    hint="Leave the table out with exclude_tables, or cast the column to JSON or text.",
                )
