"""Casts that the server must do, because the wire cannot carry the value exactly.

- `timestamp with time zone` travels as a wall clock and the name of a zone: the hour that repeats when summer time
  ends cannot be told apart. Converted to UTC at the server it is exact, and the wire then says `UTC` beside each value.
- Keys of maps travel as the text of their `toString`: arrays, maps and rows cannot be read back, and varbinary was
  written in two ways. Such a map travels as an array of rows of key and value.

Both may sit inside arrays, maps and rows, so a cast is an expression over the whole value.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Protocol

from paddock.engines.children.quoting import quoted
from paddock.engines.engine import QueryRefused
from paddock.engines.trino.lexing import words
from paddock.engines.trino.signature import Signature, spelled

_ZONED = "timestamp with time zone"
_STRUCTURES = ("array", "map", "row")
_KEYS_LOST = (*_STRUCTURES, "varbinary", _ZONED)


class Shaped(Protocol):
    """A column: what it is called, and its type."""

    @property
    def name(self) -> str: ...

    @property
    def signature(self) -> Signature: ...


def awkward(column: Shaped) -> str | None:
    """The expression that makes the column safe to send, or None where it is already."""
    return _cast(quoted(column.name), column.signature) if is_awkward(column.signature) else None


def is_awkward(signature: Signature) -> bool:
    return signature.raw == _ZONED or awkward_key(signature) or any(map(is_awkward, _inside(signature)))


def awkward_key(signature: Signature) -> bool:
    return signature.raw == "map" and signature.children[0].raw in _KEYS_LOST


def wrap(sql: str, columns: Sequence[Shaped]) -> str | None:
    """The query with the casts its columns need; None where none does. Refuses a query that ends in ORDER BY, which
    Trino drops inside another. Columns are named anew inside, because a query's own names may repeat."""
    if not any(is_awkward(column.signature) for column in columns):
        return None
    if ordered(sql):
        raise _must_cast_itself(columns)
    inner = [f"c{position}" for position in range(len(columns))]
    chosen = ", ".join(
        f"{_cast(name, column.signature)} AS {quoted(column.name)}" for name, column in zip(inner, columns, strict=True)
    )
    # The text passed the gate as one query in such brackets; names are quoted.
    return f"SELECT {chosen} FROM (\n{sql}\n) AS q ({', '.join(inner)})"  # noqa: S608


def _must_cast_itself(columns: Sequence[Shaped]) -> QueryRefused:
    needed = [column for column in columns if is_awkward(column.signature)]
    what = ", ".join(f"'{column.name}' ({spelled(column.signature)})" for column in needed)
    casts = ", ".join(
        f"{_cast(quoted(column.name), column.signature, naive=True)} AS {quoted(column.name)}" for column in needed
    )
    return QueryRefused(
        f"The query ends in ORDER BY, so Paddock cannot put a cast around it, and {what} cannot be sent exactly as it is.",
        code="cast_needed",
        hint=f"Write the cast in the query: {casts}. Or leave ORDER BY out.",
    )


def _inside(signature: Signature) -> tuple[Signature, ...]:
    return signature.children if signature.raw in _STRUCTURES else ()


def _cast(value: str, signature: Signature, *, naive: bool = False, depth: int = 0) -> str:
    """`naive`: to a timestamp without a zone, for those who write the cast themselves: the type must change, or we
    could not tell that they did."""

    def inner(part: str, child: Signature) -> str:
        return _cast(part, child, naive=naive, depth=depth + 1)

    if not is_awkward(signature):
        return value
    if signature.raw == _ZONED:
        instant = f"({value} AT TIME ZONE 'UTC')"
        return f"CAST({instant} AS {spelled(_type_after_cast(signature, naive))})" if naive else instant
    item = f"x{depth}"
    if signature.raw == "array":
        return f"transform({value}, {item} -> {inner(item, signature.children[0])})"
    sent = _type_after_cast(signature, naive)
    if awkward_key(signature):
        pair = ", ".join(inner(f"{item}[{place}]", child) for place, child in enumerate(signature.children, 1))
        return f"transform(map_entries({value}), {item} -> CAST(ROW({pair}) AS {spelled(sent.children[0])}))"
    if signature.raw == "map":
        return f"transform_values({value}, (k{depth}, {item}) -> {inner(item, signature.children[1])})"
    fields = ", ".join(inner(f"{value}[{place}]", child) for place, child in enumerate(signature.children, 1))
    return f"IF({value} IS NULL, NULL, CAST(ROW({fields}) AS {spelled(sent)}))"


def _type_after_cast(signature: Signature, naive: bool) -> Signature:
    """The type after the cast."""
    if signature.raw == _ZONED and naive:
        return Signature("timestamp", signature.numbers)
    children = tuple(_type_after_cast(child, naive) for child in _inside(signature))
    if awkward_key(signature):
        return Signature("array", (), (Signature("row", (), children, ("key", "value")),))
    return Signature(signature.raw, signature.numbers, children or signature.children, signature.names)


def ordered(sql: str) -> bool:
    """Whether the query itself, not one inside it, ends in ORDER BY. `one_query` took off what stands around it."""
    top = [token.text.lower() for token in words(sql) if token.depth == 0]
    return ("order", "by") in pairwise(top)


def needs_pairs(signature: Signature) -> bool:
    """Whether a map in it must travel as pairs."""
    return awkward_key(signature) or any(map(needs_pairs, _inside(signature)))
