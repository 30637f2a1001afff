"""Proof that a text is one query, and what it gives.

In this order, inside the session's transaction:
1. Parameters become quoted literals with the types the server found for them.
2. The text is prepared alone. The extended protocol takes one statement, so `SELECT 1) TO PROGRAM 'sh' --` ends here,
   and so do unfinished comments and quotes: what passes keeps its meaning between parentheses.
3. `SELECT * FROM (text) LIMIT 0` is run, which fetches no row of it: only a query can stand there, a writing WITH
   cannot, and rights on all its tables are checked.
Only then may the text be put inside COPY, whose simple protocol would take several statements.
"""

import asyncio
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import asyncpg
import orjson

from paddock.engines.engine import Query, QueryRefused
from paddock.engines.postgres.errors import translated
from paddock.engines.postgres.session import Connection
from paddock.engines.postgres.text import parameters_of, replaced, without_semicolon
from paddock.engines.postgres.types import PostgresColumn, ServerType, column_of
from paddock.jobs.errors import TransientResourceError

WRAP = "SELECT * FROM (\n{sql}\n) AS q LIMIT {limit}"
_BEFORE = WRAP.index("{sql}")
_TYPES = """
WITH RECURSIVE needed AS (
    SELECT pg_catalog.unnest($1::oid[]) AS oid
    UNION
    SELECT CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.typelem END
    FROM needed JOIN pg_catalog.pg_type t ON t.oid = needed.oid
    WHERE t.typtype = 'd' OR (t.typcategory = 'A' AND t.typelem <> 0)
)
SELECT t.oid, t.typname::text AS name, n.nspname::text AS schema, t.typtype::text AS kind, t.typcategory::text AS category,
       t.typdelim::text AS delimiter, t.typelem AS element, t.typbasetype AS base, t.typtypmod AS base_modifier
FROM needed JOIN pg_catalog.pg_type t ON t.oid = needed.oid JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
"""
_SPELLED = """
SELECT pg_catalog.format_type(c.type, c.modifier)
FROM ROWS FROM (pg_catalog.unnest($1::oid[]), pg_catalog.unnest($2::int4[])) WITH ORDINALITY AS c (type, modifier, place)
ORDER BY c.place
"""
_QUOTED = """
SELECT pg_catalog.format('CAST(%L AS %s)', v.value, pg_catalog.format_type(v.type, NULL))
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::oid[])) WITH ORDINALITY AS v (value, type, place)
ORDER BY v.place
"""


@dataclass(frozen=True, slots=True)
class Proven:
    """A text that may be put inside COPY, and its columns."""

    sql: str
    columns: Sequence[PostgresColumn]


async def prove(name: str, connection: Connection, query: Query) -> Proven:
    _only_characters(query.sql)
    sql = without_semicolon(query.sql)
    if query.parameters:
        sql = await _bound(name, connection, sql, query.parameters)
    own = None if query.parameters else sql
    try:
        described = await _described(connection, sql)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as problem:
        raise translated(name, problem, own) from problem
    if not described:
        raise QueryRefused(
            "This gives no columns: an export is one query.", code="not_a_query", hint="Write SELECT ... ."
        )
    try:
        await connection.fetch(WRAP.format(sql=sql, limit=0))
    except asyncpg.PostgresSyntaxError as problem:
        # Alone it was right, so it is no query: RETURNING, SHOW, EXPLAIN.
        raise QueryRefused(
            "This is a statement, not a query.",
            code="not_a_query",
            hint="An export is one SELECT, WITH, VALUES or TABLE.",
        ) from problem
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as problem:
        raise translated(name, problem, own, _BEFORE) from problem
    return Proven(sql, await typed(connection, described))


def _only_characters(sql: str) -> None:
    try:
        sql.encode()
    except UnicodeEncodeError:
        raise QueryRefused("The query holds half a character (a lone surrogate).") from None
    # In the protocol it would end the text, and what follows would be read as something else.
    if "\0" in sql:
        raise QueryRefused("The query holds a NUL character.")


async def typed(connection: Connection, described: Sequence["Field"]) -> Sequence[PostgresColumn]:
    oids = [field.type for field in described]
    found = await connection.fetch(_TYPES, oids)
    server_types = {row["oid"]: ServerType(**row) for row in found}
    spelled = await connection.fetch(_SPELLED, oids, [field.modifier for field in described])
    return [
        column_of(field.name, row[0], field.type, field.modifier, server_types)
        for field, row in zip(described, spelled, strict=True)
    ]


async def _bound(name: str, connection: Connection, sql: str, values: Mapping[str, Any]) -> str:
    """The text with literals in place of `:name`. COPY takes no parameters; the server quotes them."""
    found = parameters_of(sql, values)
    names = list(dict.fromkeys(str(token.name) for token in found))
    if unused := sorted(set(values) - set(names)):
        raise QueryRefused(
            f"The query does not use the parameter {', '.join(unused)}.", hint=f"Write :{unused[0]} where it belongs."
        )
    numbered = replaced(sql, found, {name: f"${number}" for number, name in enumerate(names, 1)})
    try:
        prepared = await connection.prepare(numbered)
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as problem:
        raise translated(name, problem) from problem
    types = prepared.get_parameters()
    if len(types) != len(names):
        raise QueryRefused("The query has parameters without a name.", hint="Write :name, not $1.")
    texts = [_text_of(parameter, values[parameter], type.name) for parameter, type in zip(names, types, strict=True)]
    quoted = await connection.fetch(_QUOTED, texts, [type.oid for type in types])
    return replaced(sql, found, dict(zip(names, (row[0] for row in quoted), strict=True)))


def _text_of(name: str, value: Any, type: str) -> str | None:
    if value is None:
        return None
    if isinstance(value, (list, tuple)) and type.endswith("[]"):
        return "{" + ",".join(_array_element(name, element, type[:-2]) for element in value) + "}"
    if isinstance(value, (dict, list, tuple)) and type in ("json", "jsonb"):
        return orjson.dumps(value).decode()
    text = _scalar(value)
    if text is None or "\0" in text:
        raise QueryRefused(f"The value of parameter {name} cannot be a {type}.")
    return text


def _array_element(name: str, value: Any, type: str) -> str:
    text = _text_of(name, value, type)
    return "NULL" if text is None else '"' + text.replace("\\", r"\\").replace('"', r"\"") + '"'


def _scalar(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    return str(value) if isinstance(value, (str, int, float, Decimal)) else None


@dataclass(frozen=True, slots=True)
class Field:
    name: str
    type: int
    modifier: int


async def _described(connection: Connection, sql: str) -> Sequence[Field]:
    driver: Any = connection
    inner, transport = driver._protocol, driver._transport
    tap = Tap(inner)
    transport.set_protocol(tap)
    try:
        prepared = await connection.prepare(sql)
    finally:
        transport.set_protocol(inner)
    if prepared.get_parameters():
        raise QueryRefused("The query has parameters without a value.", hint="Write :name and give its value.")
    fields = next((_fields(body) for kind, body in _messages(tap.received) if kind == b"T"), [])
    if [(field.name, field.type) for field in fields] != [(a.name, a.type.oid) for a in prepared.get_attributes()]:
        raise TransientResourceError("PostgreSQL's description of the columns was not understood.")
    return fields


def _messages(received: bytearray) -> Iterator[tuple[bytes, bytes]]:
    """Kind and body of each: a letter, then the length of all but the letter."""
    position = 0
    while position + 5 <= len(received):
        (length,) = struct.unpack_from("!i", received, position + 1)
        yield bytes(received[position : position + 1]), bytes(received[position + 5 : position + 1 + length])
        position += 1 + length


def _fields(body: bytes) -> Sequence[Field]:
    (count,) = struct.unpack_from("!h", body)
    fields: list[Field] = []
    position = 2
    for _ in range(count):
        end = body.index(b"\0", position)
        _, _, oid, _, modifier, _ = struct.unpack_from("!IhIhih", body, end + 1)
        fields.append(Field(body[position:end].decode(), oid, modifier))
        position = end + 19
    return fields


class Tap(asyncio.Protocol):
    """Listens to what the server sends while it is in place.

    The driver tells a column's type but not its modifier, without which numeric(10,2) cannot be told from numeric; no
    function of the server tells it either. So the row description is read a second time, off the wire.
    """

    def __init__(self, inner: asyncio.Protocol) -> None:
        self._inner = inner
        self.received = bytearray()

    def data_received(self, data: bytes) -> None:
        self.received += data
        self._inner.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._inner.connection_lost(exc)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()
