"""What the server is asked for: rows as text that needs nothing done to it here.

JSON: integers, decimals and floats are numbers with all their digits; NaN and the infinities are the strings "NaN",
"Infinity", "-Infinity"; `bytea` is {"$hex": "..."}, inside arrays, rows and ranges the string "\\x..."; json and jsonb stand
as they are, arrays as arrays, rows as objects, true and false, dates and times as ISO 8601, everything else as its text.
CSV: each value's text as in COPY, `t` and `f`, `\\x...` for bytea.
"""

from collections.abc import Sequence

from paddock.dumps.model import Format
from paddock.dumps.postgres.relations import Relation, RelationColumn
from paddock.dumps.postgres.streaming import Take
from paddock.engines.children.quoting import quoted
from paddock.engines.postgres.session import Connection

_RISKY = r"E'=', E'+', E'-', E'@', E'\t', E'\r'"


async def copy(
    connection: Connection,
    relation: Relation,
    columns: Sequence[RelationColumn],
    format: Format,
    take: Take,
    *,
    csv_safe: bool,
) -> int:
    """Gives whole rows, each with its line end, and the server's count of them."""
    if format == "json":
        query = _json(relation, columns)
        # Characters that no JSON text has: nothing is quoted or doubled.
        status = await connection.copy_from_query(
            query, output=take, format="csv", delimiter="\x02", quote="\x01", null="\x03"
        )
        return _rows(status)
    # A line without anything would be one that readers skip. With another NULL an empty text is no longer quoted by
    # itself.
    alone = len(columns) == 1
    null = r"\N" if alone else ""
    force_quote = [column.name for column in columns if column.text] if alone else None
    if _as_it_is(relation, columns, csv_safe):
        # Cheaper than a query.
        status = await connection.copy_from_table(
            relation.table,
            schema_name=relation.schema,
            columns=[column.name for column in columns],
            output=take,
            format="csv",
            null=null,
            force_quote=force_quote or None,
        )
    else:
        status = await connection.copy_from_query(
            _csv(relation, columns, csv_safe), output=take, format="csv", null=null, force_quote=force_quote or None
        )
    return _rows(status)


def _rows(status: str) -> int:
    return int(status.rpartition(" ")[2])


def _from(relation: Relation) -> str:
    """Rows of tables that inherit are theirs; partitions belong to their table."""
    return relation.full if relation.partitioned else f"ONLY {relation.full}"


def _json(relation: Relation, columns: Sequence[RelationColumn]) -> str:
    chosen = ", ".join(_json_value(column) for column in columns)
    # Not `r` alone: that could be a column.
    text = "pg_catalog.row_to_json(r.*)"
    if not all(column.plain for column in columns):
        # Line ends in a json value are between its tokens: a blank there is the same JSON.
        text = rf"pg_catalog.translate({text}::text, E'\n\r', '  ')"
    return f"SELECT {text} FROM (SELECT {chosen} FROM {_from(relation)}) AS r"  # noqa: S608  quoted


def _json_value(column: RelationColumn) -> str:
    name = quoted(column.name)
    if column.type != "bytea":
        return name
    hexed = f"pg_catalog.json_build_object('$hex', pg_catalog.encode({name}, 'hex'))"
    return f"CASE WHEN {name} IS NOT NULL THEN {hexed} END AS {name}"


def _as_it_is(relation: Relation, columns: Sequence[RelationColumn], csv_safe: bool) -> bool:
    if relation.partitioned or not columns or any(column.generated for column in columns):
        return False
    return not csv_safe or not any(column.text for column in columns)


def _csv(relation: Relation, columns: Sequence[RelationColumn], csv_safe: bool) -> str:
    chosen = ", ".join(_csv_value(column, csv_safe) for column in columns)
    return f"SELECT {chosen} FROM {_from(relation)}"  # noqa: S608  quoted


def _csv_value(column: RelationColumn, csv_safe: bool) -> str:
    name = quoted(column.name)
    if not csv_safe or not column.text:
        return name
    text = f"{name}::text"
    first = f'pg_catalog.left({text}, 1) COLLATE pg_catalog."C"'
    return f"CASE WHEN {first} IN ({_RISKY}) THEN '''' || {text} ELSE {text} END AS {name}"
