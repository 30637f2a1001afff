"""A row too large to be held several times over, in pieces: its large values are read a piece at a time."""

import codecs
import json
from binascii import hexlify
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from paddock.dumps.sqlite import places
from paddock.dumps.sqlite.asking import ask
from paddock.dumps.sqlite.expressions import Writing, utf8
from paddock.dumps.sqlite.fetching import MOST, UNSAFE
from paddock.dumps.sqlite.schema import Schema, SqliteColumn
from paddock.dumps.sqlite.values import not_kept
from paddock.dumps.sqlite.walking import Span
from paddock.engines.children.quoting import quoted as name

# Values up to here are rendered as in any other row.
SMALL = 256 << 10
PIECE = 1 << 20
# What the sqlite3 command takes as one statement, and as one value.
LOADABLE = 1_000_000_000
_CONTROLS = frozenset(range(32))


class TooLarge(Exception):
    """A row that no loader takes. `row` says which, as somebody would look for it."""

    def __init__(self, table: str, column: str, row: str) -> None:
        super().__init__(table, column, row)
        self.table, self.column, self.row = table, column, row


@dataclass(frozen=True, slots=True)
class _Form:
    """How a value is written, and how many bytes that takes."""

    opening: bytes
    closing: bytes
    hexed: bool
    size: int


@dataclass(slots=True)
class _Value:
    """A large value that was met: read where it lies, or held where it cannot be."""

    size: int
    blob: apsw.Blob | None
    held: bytes
    form: _Form | None = None

    def read(self, offset: int, length: int) -> bytes:
        if self.blob is None:
            return self.held[offset : offset + length]
        self.blob.seek(offset)
        return self.blob.read(min(length, self.size - offset))

    def pieces(self) -> "list[tuple[int, int]]":
        return [(start, PIECE) for start in range(0, self.size, PIECE)]

    def close(self) -> None:
        if self.blob is not None:
            self.blob.close(True)


class BigRows:
    def __init__(self, connection: apsw.Connection, schema: Schema, writing: Writing) -> None:
        self._connection = connection
        self._codec = schema.codec
        self._writing = writing
        self._columns = writing.columns
        # The value that is being written: the next piece is of it, unless somebody begins elsewhere.
        self._open: tuple[object, _Value] | None = None
        self._known: tuple[object, list[tuple[str, int]]] | None = None

    def piece(self, span: Span, column: int, offset: int, enough: int) -> tuple[bytes, dict[str, int] | None]:
        """From a byte of a column on, and where it goes on; None: the row is over."""
        if self._writing.format == "sql" and (column, offset) == (0, 0):
            self._check(span)
        parts: list[bytes] = []
        size = 0
        while size < enough and column < len(self._columns):
            if offset == 0:
                parts.append(self._before(span, column))
            data, offset = self._cell(span, column, offset)
            parts.append(data)
            size += len(data)
            if offset == 0:
                column += 1
        if column < len(self._columns):
            return b"".join(parts), {"column": column, "offset": offset}
        self._let_go()
        return b"".join([*parts, self._after()]), None

    def _before(self, span: Span, column: int) -> bytes:
        comma = b"," if column else b""
        if self._writing.format == "json":
            return (comma or b"{") + json.dumps(self._columns[column].name, ensure_ascii=False).encode() + b":"
        if column or self._writing.format == "csv":
            return comma
        rowid = b"%d," % span.next if self._writing.keeps_rowid else b""
        return self._writing.frame().before + rowid

    def _after(self) -> bytes:
        return b"}" if self._writing.format == "json" else self._writing.frame().after

    def _cell(self, span: Span, column: int, offset: int) -> tuple[bytes, int]:
        """Some bytes of a cell, and the offset of the next; 0: it is over."""
        kind, octets = self._kinds(span)[column]
        if octets <= SMALL and (kind != "text" or self._codec == "utf-8"):
            return self._small(span, self._columns[column]), 0
        value = self._value(span, column, kind)
        if value.form is None:
            value.form = self._form(value, kind)
        opening = value.form.opening if offset == 0 else b""
        data = self._written(value.form, value.read(offset, PIECE))
        offset += PIECE
        if offset < value.size:
            return opening + data, offset
        return opening + data + value.form.closing, 0

    def _written(self, form: _Form, data: bytes) -> bytes:
        if form.hexed:
            return hexlify(data)
        if self._writing.format == "sql":
            return data.replace(b"'", b"''")
        if self._writing.format == "csv":
            return data.replace(b'"', b'""')
        data = data.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        for byte in set(data) & _CONTROLS:
            data = data.replace(bytes([byte]), b"\\u%04x" % byte)
        return data

    def _form(self, value: _Value, kind: str) -> _Form:
        return getattr(self, f"_{self._writing.format}_form")(value, kind)  # type: ignore[no-any-return]

    def _sql_form(self, value: _Value, kind: str) -> _Form:
        if kind == "blob":
            return _hexed(b"X'", b"'", value)
        quotes = 0
        for start, length in value.pieces():
            data = value.read(start, length)
            if b"\0" in data or b"\r" in data:
                return _hexed(b"CAST(X'", b"' AS TEXT)", value)
            quotes += data.count(b"'")
        return _Form(b"'", b"'", False, value.size + quotes + 2)

    def _csv_form(self, value: _Value, kind: str) -> _Form:
        if kind == "blob":
            return _hexed(b"\\x", b"", value)
        unsafe = self._writing.csv_safe and value.read(0, 1) in UNSAFE
        return _Form(b"\"'" if unsafe else b'"', b'"', False, value.size)

    def _json_form(self, value: _Value, kind: str) -> _Form:
        if kind == "blob":
            return _hexed(b'{"$hex":"', b'"}', value)
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            for start, length in value.pieces():
                decoder.decode(value.read(start, length), start + length >= value.size)
        except UnicodeDecodeError:
            return _hexed(b'{"$text_hex":"', b'"}', value)
        return _Form(b'"', b'"', False, value.size)

    def _check(self, span: Span) -> None:
        """A statement that no loader takes is not begun. Scanned only where it may be so."""
        kinds = self._kinds(span)
        if 2 * sum(octets for _, octets in kinds) + 100 * len(kinds) < LOADABLE:
            return
        total = len(self._writing.frame().before) + 100
        sizes = []
        for number, (kind, octets) in enumerate(kinds):
            value = self._value(span, number, kind) if octets > SMALL else None
            sizes.append(2 * octets + 20 if value is None else self._form(value, kind).size)
        total += sum(sizes)
        if total > LOADABLE:
            largest = self._columns[sizes.index(max(sizes))].name
            raise TooLarge(self._writing.plan.name, largest, self._row(span))

    def _row(self, span: Span) -> str:
        plan = self._writing.plan
        if plan.rowid is not None:
            return f"with {plan.rowid} = {span.next}"
        if plan.key:
            packed = span.next["key"]
            tests = [
                f"{name(k.name)} = {places.display_key(v, self._codec)}" for k, v in zip(plan.key, packed, strict=True)
            ]
            return f"with {' and '.join(tests)}"
        return f"number {span.next:,}"

    def _kinds(self, span: Span) -> list[tuple[str, int]]:
        """Asked for once: where a row cannot be looked up, each question reads all of it."""
        if self._known is None or self._known[0] != span.next:
            groups = [self._columns[start : start + MOST] for start in range(0, len(self._columns), MOST)]
            self._known = (span.next, [kind for group in groups for kind in self._kinds_of(span, group)])
        return self._known[1]

    def _kinds_of(self, span: Span, columns: Sequence[SqliteColumn]) -> list[tuple[str, int]]:
        names = [name(column.name) for column in columns]
        what = ",".join(f"typeof({it}),ifnull(octet_length({it}),0)" for it in names)
        row: Any = ask(self._connection, what, span.source, span.bindings).fetchone()
        assert row is not None
        return list(zip(row[::2], row[1::2], strict=True))

    def _small(self, span: Span, column: SqliteColumn) -> bytes:
        cell = self._writing.value(column)
        data = ask(self._connection, f"CAST({cell} AS BLOB)", span.source, span.bindings).get
        return utf8(data, self._codec)

    def _value(self, span: Span, column: int, kind: str) -> _Value:
        key = (span.next, column)
        if self._open is None or self._open[0] != key:
            self._let_go()
            self._open = (key, self._met(span, self._columns[column], kind))
        return self._open[1]

    def _met(self, span: Span, column: SqliteColumn, kind: str) -> _Value:
        if self._writing.plan.rowid is not None and self._codec == "utf-8":
            try:
                blob = self._connection.blob_open("main", self._writing.plan.name, column.name, span.next, False)
            except apsw.SQLError:
                pass  # Of a computed column, say: held then.
            else:
                return _Value(blob.length(), blob, b"")
        held = ask(self._connection, f"CAST({name(column.name)} AS BLOB)", span.source, span.bindings).get
        return self._wide(held) if kind == "text" and self._codec != "utf-8" else _Value(len(held), None, held)

    def _wide(self, data: bytes) -> _Value:
        narrow = utf8(data, self._codec)
        if self._writing.format == "sql" and (b"\0" in narrow or b"\r" in narrow or not_kept(data, self._codec)):
            # Read back by a database of this encoding.
            value = _Value(len(data), None, data)
            value.form = _hexed(b"CAST(X'", b"' AS TEXT)", value)
            return value
        return _Value(len(narrow), None, narrow)

    def _let_go(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    close = _let_go


def _hexed(opening: bytes, closing: bytes, value: _Value) -> _Form:
    return _Form(opening, closing, True, 2 * value.size + len(opening) + len(closing))
