"""Proves that a text is exactly one query of SQLite that only reads, and finds the declared types of its columns."""

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from paddock.engines.children.wire import Failure

ALLOWED = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_READ, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})
NEVER = frozenset({"load_extension", "fts3_tokenizer", "readfile", "writefile", "edit"})
# What a text is made of, as far as it matters: where a parameter or a semicolon is one.
TOKENS = re.compile(
    r"""
    (?P<comment> --[^\n]* | /\*.*?(?:\*/|\Z) )
  | (?P<space> \s+ )
  | (?P<quoted> '(?:[^']|'')*' | "(?:[^"]|"")*" | `(?:[^`]|``)*` | \[[^\]]*\] )
  | (?P<parameter> [:@\#$][A-Za-z0-9_$\u0080-\U0010ffff]+ | \?\d* )
  | (?P<end> ; )
  | (?P<word> [A-Za-z0-9_$\u0080-\U0010ffff]+ | . )
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Proven:
    # The query without what follows it.
    text: str
    names: Sequence[str]
    # Declared types of columns that come straight from a table, None for expressions.
    declared: Sequence[str | None]
    # Whether the column comes straight from a table.
    stored: Sequence[bool]
    parameters: frozenset[str]


def authorize(action: int, first: str | None, second: str | None, _database: str | None, _inside: str | None) -> int:
    if action == apsw.SQLITE_FUNCTION and (second or "").lower() in NEVER:
        return apsw.SQLITE_DENY
    if action == apsw.SQLITE_PRAGMA and (first, second) == ("data_version", None):
        return apsw.SQLITE_OK  # full-text tables ask for it when they are read
    return apsw.SQLITE_OK if action in ALLOWED else apsw.SQLITE_DENY


def prove(connection: apsw.Connection, sql: str) -> Proven:
    """Under `authorize`, by preparing it: nothing runs."""
    assert connection.authorizer is authorize
    text = one_statement(sql)
    found: list[Any] = []

    def look(cursor: apsw.Cursor, _sql: str, _bindings: object) -> bool:
        found.append(
            (cursor.is_readonly, cursor.is_explain, cursor.has_vdbe, cursor.description_full, cursor.bindings_names)
        )
        return False  # do not run it

    cursor = connection.cursor()
    cursor.exec_trace = look
    with contextlib.suppress(apsw.ExecTraceAbort):
        cursor.execute(text, _Anything())
    if not found:
        raise Failure("query_refused", "There is no query in the text.", refused=True)
    readonly, explain, runs, columns, parameters = found[0]
    if not (readonly and runs and columns) or explain:
        raise Failure("query_refused", "An export is a query that reads (SELECT).", refused=True)
    if None in parameters or any(str(name).isdigit() for name in parameters):
        raise Failure("query_refused", "Parameters have names here: write :name instead of ?.", refused=True)
    return Proven(
        text,
        [column[0] for column in columns],
        [column[1] for column in columns],
        [column[3] is not None for column in columns],
        frozenset(parameters),
    )


class _Anything(dict[str, None]):
    """While nothing runs, every parameter is NULL."""

    def __missing__(self, key: str) -> None:
        return None


def one_statement(sql: str) -> str:
    ended: int | None = None
    for kind, start, _text in _tokens(sql):
        if kind in ("comment", "space"):
            continue
        if kind == "end":
            ended = start if ended is None else ended
        elif ended is not None:
            raise Failure("query_refused", "An export is one query; the text has more statements.", refused=True)
    return sql if ended is None else sql[:ended]


def declared_types(connection: apsw.Connection, proven: Proven) -> list[str | None]:
    """A view tells what SQLite knows of an expression: the type of its CAST. It is never read.

    A view has no parameters, and a parameter has no type: NULL has none either.
    """
    bare = "".join("NULL" if kind == "parameter" else text for kind, _, text in _tokens(proven.text))
    prove(connection, bare)
    connection.authorizer = None
    try:
        connection.execute("PRAGMA query_only = OFF")
        connection.execute(f"CREATE TEMP VIEW paddock_types AS\n{bare}")
        shown = [row[2] or None for row in connection.execute("PRAGMA temp.table_xinfo('paddock_types')")]
        connection.execute("DROP VIEW temp.paddock_types")
        connection.execute("PRAGMA query_only = ON")
    finally:
        connection.authorizer = authorize
    # A column that was declared without a type looks like a blob in a view.
    return [
        declared if declared or stored else cast
        for declared, stored, cast in zip(proven.declared, proven.stored, shown, strict=True)
    ]


def _tokens(sql: str) -> Iterator[tuple[str, int, str]]:
    for match in TOKENS.finditer(sql):
        yield str(match.lastgroup), match.start(), match[0]
