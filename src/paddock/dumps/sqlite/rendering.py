"""Chunks of a table that has a key.

Ordinary rows are aggregated by SQLite, some hundred at a time: one statement, one value in Python. It is told to give up
where that value grows too large; then fewer are tried, and the place remembers how many. Rows of kilobytes go one by
one (`fetching`): for them the way through Python costs little. A row that is larger than BIG is written in pieces
(`big`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import apsw

from paddock.dumps.sqlite import expressions, formats
from paddock.dumps.sqlite.asking import ask
from paddock.dumps.sqlite.big import BigRows
from paddock.dumps.sqlite.chunks import BIG, Chunk, Limits, Renderer, RowsDiffer
from paddock.dumps.sqlite.counting import Counted
from paddock.dumps.sqlite.expressions import DOUBT, Writing, utf8
from paddock.dumps.sqlite.fetching import Fetching
from paddock.dumps.sqlite.quoting import literal
from paddock.dumps.sqlite.schema import Schema, TablePlan
from paddock.dumps.sqlite.walking import ByKey, ByRowid, Mark, Span, Walk
from paddock.engines.children.quoting import quoted as name

# Rows in one statement: most, and fewest before they go one by one.
STEP, LEAST_STEP = 1_000, 125
# If this many first rows are so large on average, the table begins one by one.
SAMPLE, LARGE_ROW = 64, 4 << 10
BY_ROW = 0
# Rows at the beginning of a chunk whose types are looked at.
GUESSED = 32
# After a value that the fast way cannot say there are likely more.
CAREFUL = 8


def renderer(connection: apsw.Connection, schema: Schema, writing: Writing, limits: Limits) -> Renderer:
    return Complete(connection, writing.plan, _renderer(connection, schema, writing, limits))


def _renderer(connection: apsw.Connection, schema: Schema, writing: Writing, limits: Limits) -> Renderer:
    if writing.plan.rowid is not None:
        return Rendering(connection, schema, writing, limits, ByRowid(connection, writing.plan))
    if writing.plan.key:
        return Rendering(connection, schema, writing, limits, ByKey(connection, writing.plan))
    return Counted(connection, schema, writing, limits)


class Complete:
    """Holds the rows that were written against those that are there: a table stored in another order than it says, or
    damaged otherwise, would lose rows or never end. A place carries both numbers, so that the table is counted once."""

    def __init__(self, connection: apsw.Connection, plan: TablePlan, chunks: Renderer) -> None:
        self._connection = connection
        self._plan = plan
        self._chunks = chunks

    def render(self, place: Any) -> Chunk:
        if place is None:
            place = {"chunk": None, "written": 0, "counted": self._count()}
        before, counted = place["chunk"], place["counted"]
        chunk = self._chunks.render(before)
        written = place["written"] + chunk.rows
        ended, stands_still = chunk.next is None, chunk.next == before
        if written > counted or (ended and written < counted) or (stands_still and not ended):
            raise RowsDiffer(self._plan.name, written, counted)
        return chunk if ended else replace(chunk, next={"chunk": chunk.next, "written": written, "counted": counted})

    def close(self) -> None:
        self._chunks.close()

    def _count(self) -> int:
        """Of the table itself: an index of it may be wrong where it is not."""
        indexed = "" if self._plan.kind == "virtual" else " NOT INDEXED"
        only = f" WHERE {self._plan.only}" if self._plan.only else ""
        return int(ask(self._connection, "count(*)", f"main.{name(self._plan.name)}{indexed}{only}").get)


class Rendering:
    """A place is the mark of the last row before it, how many rows to ask for at a time, and how many times to go the
    careful way, because the fast one was in vain."""

    def __init__(
        self, connection: apsw.Connection, schema: Schema, writing: Writing, limits: Limits, walk: Walk
    ) -> None:
        self._connection = connection
        self._codec = schema.codec
        self._writing = writing
        self._limits = limits
        self._frame = writing.frame()
        self._between = self._frame.between.encode()
        self._walk = walk
        self._most = connection.limit(apsw.SQLITE_LIMIT_LENGTH)
        self._octets = expressions.octets(writing.columns)
        self._around = len(self._between) + sum(len(column.name.encode()) + 20 for column in writing.columns)
        self._big = BigRows(connection, schema, writing)
        self._fetching = Fetching(writing, schema.codec)
        self._guesses = formats.guesses(writing) if writing.format != "json" and formats.possible(writing) else ""
        self._guessed: Sequence[str | None] = ()
        self._careful_row = _joined(writing.row(), self._frame.between)
        self._fast_row = self._careful_row
        if writing.format == "json" and not writing.wide:
            self._fast_row = _joined(writing.plain_object(), self._frame.between)

    def render(self, place: Any) -> Chunk:
        if place is None:
            place = {"after": None, "step": self._first_step(), "slow": 0}
        if "big" in place:
            return self._big_piece(place["after"], **place["big"])
        if place["step"] == BY_ROW:
            return self._by_row(place["after"])
        return self._aggregated(place["after"], place["step"], place["slow"])

    def close(self) -> None:
        self._big.close()

    def _first_step(self) -> int:
        sizes = list(self._walk.sizes(None, SAMPLE, self._octets))
        return BY_ROW if sizes and sum(sizes) / len(sizes) > LARGE_ROW else STEP

    def _aggregated(self, mark: Mark, step: int, slow: int) -> Chunk:
        parts: list[list[bytes]] = []
        size = rows = 0
        self._guess(mark)
        while True:
            span = self._walk.span(mark, min(step, self._limits.rows))
            try:
                data, count, slow = self._aggregate(span, slow)
            except apsw.TooBigError:
                step = step // 2 if step // 2 >= LEAST_STEP else BY_ROW
                if parts or step == BY_ROW:
                    return self._chunk(parts, {"after": mark, "step": step, "slow": slow}, rows)
                continue
            if count:
                parts.append([data])
            size, rows, mark = size + len(data), rows + count, span.next
            if mark is None:
                return self._chunk(parts, None, rows)
            if size >= self._limits.bytes // 2 or rows >= self._limits.rows:
                step = min(2 * step, STEP) if size < self._limits.bytes // 8 else step
                return self._chunk(parts, {"after": mark, "step": step, "slow": slow}, rows)

    def _chunk(self, parts: Sequence[Sequence[bytes]], after: Any, rows: int) -> Chunk:
        if not parts:
            return Chunk((), after, 0)
        pieces = [self._frame.before, *parts[0]]
        for part in parts[1:]:
            pieces.append(self._between)
            pieces += part
        return Chunk([*pieces, self._frame.after], after, rows)

    def _guess(self, mark: Mark) -> None:
        """From the rows that follow, so that it depends on the place alone."""
        if not self._guesses:
            return
        span = self._walk.span(mark, GUESSED)
        guessed: Any = ask(self._connection, self._guesses, span.source, span.bindings).fetchone()
        if guessed != self._guessed:
            self._guessed = guessed
            rows = [formats.row(self._writing, guessed, careful=careful) for careful in (False, True)]
            self._fast_row, self._careful_row = (_joined(row, self._frame.between) for row in rows)

    def _aggregate(self, span: Span, slow: int) -> tuple[bytes, int, int]:
        """The rows of a span, joined, and how many are to go the careful way. Fails if they are too many bytes."""
        self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, max(1 << 10, self._limits.bytes // 2))
        try:
            if not slow:
                data, count = self._rendered_rows(self._fast_row, span)
                if self._writing.wide and self._writing.format == "csv" and DOUBT in data:
                    return self._between.join(map(self._fetching.text, self._fetched(span))), count, 0
                if self._plain(data):
                    return data, count, 0
                slow = CAREFUL
            return *self._rendered_rows(self._careful_row, span), slow - 1
        finally:
            self._connection.limit(apsw.SQLITE_LIMIT_LENGTH, self._most)

    def _rendered_rows(self, row: str, span: Span) -> tuple[bytes, int]:
        data, count = ask(self._connection, f"{row},count(*)", span.source, span.bindings).get
        return utf8(data or b"", self._codec), count

    def _plain(self, data: bytes) -> bool:
        """Whether the fast way has said it all."""
        if self._fast_row is self._careful_row:
            return True
        if self._writing.format == "json":
            return _is_unicode(data)
        return DOUBT not in data and (self._writing.format == "csv" or b"\r" not in data)

    def _by_row(self, mark: Mark) -> Chunk:
        """As many rows as a chunk may have, or one."""
        rows = size = 0
        big = False
        for octets in self._walk.sizes(mark, self._limits.rows, self._octets):
            big = octets > BIG
            # As hex it is twice as much.
            if big or (rows and size + 2 * octets + self._around > self._limits.bytes):
                break
            rows, size = rows + 1, size + 2 * octets + self._around
        if big and not rows:
            return self._big_piece(mark, 0, 0)
        span = self._walk.span(mark, max(rows, 1))
        parts = [self._fetching.pieces(row) for row in self._fetched(span)]
        step = LEAST_STEP if rows and size / rows < LARGE_ROW and not big else BY_ROW
        after = {"after": span.next, "step": step, "slow": 0}
        return self._chunk(parts, None if span.next is None else after, len(parts))

    def _fetched(self, span: Span) -> Iterable[Sequence[bytes | None]]:
        asked: list[Any] = [
            ask(self._connection, ",".join(values), span.source, span.bindings) for values in self._fetching.values
        ]
        return (tuple(chain.from_iterable(parts)) for parts in zip(*asked, strict=True))

    def _big_piece(self, mark: Mark, column: int, offset: int) -> Chunk:
        span = self._walk.span(mark, 1)
        begins = (column, offset) == (0, 0)
        data, position = self._big.piece(span, column, offset, self._limits.bytes // 2)
        if position is not None:
            return Chunk([data], {"after": mark, "big": position}, 0, begins)
        return Chunk([data], None if span.next is None else {"after": span.next, "step": BY_ROW}, 1, begins)


def _joined(row: str, between: str) -> str:
    return f"CAST(group_concat({row},{literal(between)}) AS BLOB)"


def _is_unicode(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
