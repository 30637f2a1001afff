"""Tables without a key that can be looked up: virtual ones, those whose columns take all names of the rowid, those
stored in an order that nobody here knows. They are read in one pass; a place is the number of rows before it.

Whoever goes on where the last chunk ended has the cursor still open. Beginning elsewhere costs a walk over the rows
before, once for each turn of a dump. Measured, that walk is a hundred times as fast as rendering: with slices of some
seconds it is a tenth of the whole work at ten million rows, and half of it at a hundred million.
"""

from collections.abc import Iterator
from typing import Any

import apsw

from paddock.dumps.sqlite import expressions
from paddock.dumps.sqlite.asking import ask
from paddock.dumps.sqlite.big import BigRows
from paddock.dumps.sqlite.chunks import BIG, Chunk, Limits
from paddock.dumps.sqlite.expressions import Writing
from paddock.dumps.sqlite.fetching import Fetching
from paddock.dumps.sqlite.schema import Schema
from paddock.dumps.sqlite.walking import Span
from paddock.engines.children.quoting import quoted as name


class Counted:
    def __init__(self, connection: apsw.Connection, schema: Schema, writing: Writing, limits: Limits) -> None:
        self._connection = connection
        self._limits = limits
        self._frame = writing.frame()
        self._between = self._frame.between.encode()
        self._fetching = Fetching(writing, schema.codec, at_once=True)
        self._big = BigRows(connection, schema, writing)
        self._table = f"main.{name(writing.plan.name)}"
        octets = expressions.octets(writing.columns)
        values = [f"CASE WHEN {octets}>{BIG} THEN NULL ELSE {each} END" for each in self._fetching.values[0]]
        self._values = ",".join([octets, *values])
        # The open cursor, the row it stands before, and that row if it was looked at.
        self._cursor: Iterator[Any] | None = None
        self._at = 0
        self._seen: Any = None

    def render(self, place: Any) -> Chunk:
        row = 0 if place is None else place["row"]
        if place is not None and "big" in place:
            return self._big_piece(row, **place["big"])
        parts: list[bytes] = []
        size = 0
        while size < self._limits.bytes // 2 and len(parts) < self._limits.rows:
            found = self._look(row + len(parts))
            if found is None:
                return self._chunk(parts, None)
            if found[0] > BIG:
                return self._chunk(parts, {"row": row + len(parts)}) if parts else self._big_piece(row, 0, 0)
            parts.append(self._fetching.text(found[1:]))
            size += len(parts[-1])
        return self._chunk(parts, {"row": row + len(parts)})

    def close(self) -> None:
        self._cursor = self._seen = None
        self._big.close()

    def _look(self, row: int) -> Any:
        """That row, None behind the last. Looking again at the same one is free."""
        if self._cursor is None or row not in (self._at, self._at - 1):
            self._cursor, self._at = (
                iter(ask(self._connection, self._values, f"{self._table} LIMIT -1 OFFSET ?", (row,))),
                row,
            )
        if row == self._at:
            self._seen = next(self._cursor, None)
            self._at += 1
        return self._seen

    def _chunk(self, parts: list[bytes], after: Any) -> Chunk:
        if not parts:
            return Chunk((), after, 0)
        return Chunk((self._frame.before, self._between.join(parts), self._frame.after), after, len(parts))

    def _big_piece(self, row: int, column: int, offset: int) -> Chunk:
        span = Span(f"{self._table} LIMIT 1 OFFSET ?", (row,), row + 1)
        begins = (column, offset) == (0, 0)
        data, position = self._big.piece(span, column, offset, self._limits.bytes // 2)
        if position is not None:
            return Chunk([data], {"row": row, "big": position}, 0, begins)
        return Chunk([data], {"row": row + 1}, 1, begins)
