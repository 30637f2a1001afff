"""The rows of a table in the order of its key, a span at a time: each span costs the same wherever it lies.

`ByRowid` is the usual one. `ByKey` walks a table without rowid in its own order, which may be descending in some columns
and by other collations: not by one comparison of row values, but from the deepest column of the key up: first what has
all but the last column in common with the last row, then all but the last two, and so on.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import apsw

from paddock.dumps.sqlite import places
from paddock.dumps.sqlite.asking import ask
from paddock.dumps.sqlite.schema import TablePlan
from paddock.engines.children.quoting import quoted as name

# Where a span begins: None, or JSON.
Mark = Any


@dataclass(frozen=True, slots=True)
class Span:
    """`source` follows FROM. `next` is the mark behind it, None at the end of the table."""

    source: str
    bindings: Sequence[places.Value]
    next: Mark


class Walk(Protocol):
    def span(self, mark: Mark, rows: int) -> Span:
        """At most so many rows after the mark. It may have fewer, or none, before the end of the table."""

    def sizes(self, mark: Mark, rows: int, octets: str) -> Iterator[int]:
        """How large each of those rows is."""


class ByRowid:
    def __init__(self, connection: apsw.Connection, plan: TablePlan) -> None:
        assert plan.rowid is not None
        self._connection = connection
        self._rowid = plan.rowid
        self._table = f"main.{name(plan.name)} NOT INDEXED"
        self._only = f" AND {plan.only}" if plan.only else ""

    def span(self, mark: Mark, rows: int) -> Span:
        after, bindings = self._after(mark)
        ahead = f"{self._table} WHERE {after} ORDER BY {self._rowid} LIMIT 1 OFFSET ?"
        last = ask(self._connection, self._rowid, ahead, (*bindings, rows - 1)).get
        if last is None:
            return Span(f"{self._table} WHERE {after}", bindings, None)
        return Span(f"{self._table} WHERE {after} AND {self._rowid}<=?", (*bindings, last), last)

    def sizes(self, mark: Mark, rows: int, octets: str) -> Iterator[int]:
        after, bindings = self._after(mark)
        ahead = f"{self._table} WHERE {after} ORDER BY {self._rowid} LIMIT ?"
        found: Iterable[Any] = ask(self._connection, octets, ahead, (*bindings, rows))
        return (row[0] for row in found)

    def _after(self, mark: Mark) -> tuple[str, tuple[places.Value, ...]]:
        if mark is None:
            # The range, though it is all: it is what makes SQLite walk the table and no index.
            return f"{self._rowid}>=-9223372036854775808{self._only}", ()
        return f"{self._rowid}>?{self._only}", (mark,)


class ByKey:
    """A mark is the key and how many of its columns, from the left, still bind: the last of them is gone beyond."""

    def __init__(self, connection: apsw.Connection, plan: TablePlan) -> None:
        self._connection = connection
        self._key = plan.key
        self._table = f"main.{name(plan.name)}"
        self._order = ",".join(f"{_collated(each)}{' DESC' if each.descending else ''}" for each in plan.key)
        self._columns = ",".join(name(column.name) for column in plan.columns)

    def span(self, mark: Mark, rows: int) -> Span:
        where, bindings = self._after(mark)
        key = ",".join(
            f"CASE WHEN {it} COLLATE BINARY>='' THEN CAST({it} AS BLOB) ELSE {it} END,{it}<x''"
            for it in (name(each.name) for each in self._key)
        )
        ahead = f"{self._table} WHERE {where} ORDER BY {self._order} LIMIT"
        last = ask(self._connection, key, f"{ahead} 1 OFFSET ?", (*bindings, rows - 1)).fetchone()
        source = f"(SELECT {self._columns} FROM {ahead} ?)"  # noqa: S608 - names are quoted
        return Span(source, (*bindings, rows), self._next(mark, last))

    def sizes(self, mark: Mark, rows: int, octets: str) -> Iterator[int]:
        where, bindings = self._after(mark)
        ahead = f"{self._table} WHERE {where} ORDER BY {self._order} LIMIT ?"
        found: Iterable[Any] = ask(self._connection, octets, ahead, (*bindings, rows))
        return (row[0] for row in found)

    def _next(self, mark: Mark, last: Any) -> Mark:
        if last is not None:
            return {"key": places.pack(last[::2], last[1::2]), "binding": len(self._key)}
        if mark is None or mark["binding"] == 1:
            return None
        return {"key": mark["key"], "binding": mark["binding"] - 1}

    def _after(self, mark: Mark) -> tuple[str, tuple[places.Value, ...]]:
        if mark is None:
            return "1", ()
        packed, depth = mark["key"], mark["binding"]
        values = places.unpack(packed[:depth])
        tests = []
        for number, (each, (word, _)) in enumerate(zip(self._key, values, strict=False)):
            beyond = "<" if each.descending else ">"
            tests.append(f"{_collated(each)}{'=' if number < depth - 1 else beyond}{word}")
        return " AND ".join(tests), tuple(value for _, value in values)


def _collated(each: Any) -> str:
    return f"{name(each.name)} COLLATE {name(each.collation)}"
