"""Rows to Arrow without an object for each value: the page becomes CSV, which Arrow reads by itself. For flat columns.

Trino's JSON is UTF-8 without spaces and without control bytes, so those bytes, and the ones that UTF-8 never has, are
free to mean something else. `[` becomes a newline and `]` a tab, byte for byte, wherever they stand; escapes become one
byte each. Quotes are then only those around strings. A row reads `1,"a"⇥,⏎`: one empty column more than there are, and
a tab behind its last value, which Arrow trims off numbers and we off texts. Inside strings all is put back at the end,
byte for byte again, so offsets hold.

What comes out is believed only if it adds up: valid UTF-8, every row of the same width, each value of its column's
type, no quote left inside a text, and a page as long as its values, their quotes and what stands between them (so a
quoted number, a bare text or a bracket too many is noticed). Every byte is in one of the reader's fields or beside it,
so nothing has to be counted in the page itself. Anything else is left to `ByObjects`, which knows every form and has
the errors.
Not noticed, and never sent: letters between a closing quote and the comma, numbers in forms that JSON does not have
(`01`, `.5`, `"nan"`).
"""

import re
import struct
import sys
from collections.abc import Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from paddock.engines.trino.decoding.by_objects import ByObjects
from paddock.engines.trino.decoding.texts import FromTexts, from_texts
from paddock.engines.trino.types import BY_NAME, TrinoColumn, Wire

_NESTED: tuple[Wire, ...] = ("array", "map", "row")
_BARE: tuple[Wire, ...] = ("boolean", "integer", "float")

_ESCAPE = re.compile(rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
# Each escape's byte and what it means. Bytes from 0xF5 never occur in UTF-8.
_MEANINGS = {
    b'\\"': (0xFF, b'"'),
    b"\\\\": (0xFE, b"\\"),
    b"\\n": (0xFD, b"\n"),
    b"\\t": (0xFC, b"\t"),
    b"\\r": (0xFB, b"\r"),
    b"\\b": (0xFA, b"\b"),
    b"\\f": (0xF9, b"\f"),
}
_BYTES = {escape: bytes((mark,)) for escape, (mark, _) in _MEANINGS.items()}
_PUT_BACK = bytes.maketrans(
    b"\n\t" + bytes(mark for mark, _ in _MEANINGS.values()), b"[]" + b"".join(text for _, text in _MEANINGS.values())
)
_MARKS = (b"\n", b"\t", *_BYTES.values())
_FIRST_PRINTED = 0x20

# Arrow takes a space behind a closing quote for a part of the text. (Found inside a text too, which does no harm.)
_SPACED = re.compile(rb'" +[,\]]')
_QUOTE_AND_SPACE = pa.scalar(int.from_bytes(b'" ', sys.byteorder), pa.uint16())

# Where more than one byte in this many is an escape (columns of JSON text), objects are quicker.
_DENSE = 100
_SAMPLE = 1 << 18
# The reader's block is a 32-bit number.
_MOST_BYTES = (1 << 31) - 64


class NotPlain(ValueError):
    """The page is not what this way can read; whether it is wrong is not ours to say."""


class ByCsv:
    def __init__(self, columns: Sequence[TrinoColumn]) -> None:
        self._otherwise = ByObjects(columns)
        self._schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        self._wires = [BY_NAME[column.signature.raw].wire for column in columns]
        # What is no boolean is read from its text, as strictly as in `ByObjects`: the reader would trim and guess, and
        # not tell how long it was.
        self._from_texts = [_from_text(column, wire) for column, wire in zip(columns, self._wires, strict=True)]
        # Names of our own: the query's may repeat.
        self._names = [f"c{place}" for place in range(len(columns) + 1)]
        types = [pa.bool_() if wire == "boolean" else pa.string() for wire in self._wires]
        self._parse = pcsv.ParseOptions(
            double_quote=False, escape_char=False, newlines_in_values=True, ignore_empty_lines=False
        )
        self._convert = pcsv.ConvertOptions(
            check_utf8=False,  # checked once for the whole page
            column_types=dict(zip(self._names, [*types, pa.string()], strict=True)),
            null_values=["null", "null\t"],
            true_values=["true", "true\t"],
            false_values=["false", "false\t"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )

    def decode(self, rows: bytes) -> pa.RecordBatch:
        if _dense(rows):
            return self._otherwise.decode(rows)
        try:
            return self.quickly(rows)
        except (ValueError, TypeError, KeyError, OverflowError, pa.ArrowException):
            return self._otherwise.decode(rows)

    def quickly(self, rows: bytes) -> pa.RecordBatch:
        """Raises where the page must be read otherwise."""
        if not (rows.startswith(b"[[") and rows.endswith(b"]]") and len(rows) < _MOST_BYTES):
            raise NotPlain
        if _least_byte(rows) < _FIRST_PRINTED:
            raise NotPlain
        _must_be_utf8(rows)
        text = _unescaped(rows)
        *raw, beyond = self._read(text)
        if _size(beyond):
            raise NotPlain
        raw[-1] = self._without_tab(raw[-1])
        texts = {place: _Text(raw[place]) for place, wire in enumerate(self._wires) if wire == "text"}
        if any(column.ends_in_space for column in texts.values()) and _spaced(text):
            raise NotPlain
        columns = [
            texts[place].put_back() if place in texts else column if read is None else read(column)
            for place, (column, read) in enumerate(zip(raw, self._from_texts, strict=True))
        ]
        quotes = 2 * sum(map(_quoted, columns, self._wires))
        # Of each row two brackets, and a comma behind each value but that of the page's last.
        between = len(beyond) * (2 + len(columns)) + 1
        if len(text) != sum(map(_size, raw)) + quotes + between:
            raise NotPlain
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _read(self, text: bytes) -> list[pa.Array]:
        # Without the page's bracket and the first row's.
        lines = pa.py_buffer(text.replace(b"[", b"\n").replace(b"]", b"\t")).slice(2)
        options = pcsv.ReadOptions(use_threads=False, block_size=lines.size + 1, column_names=self._names)
        table = pcsv.read_csv(
            pa.BufferReader(lines), read_options=options, parse_options=self._parse, convert_options=self._convert
        )
        [batch] = table.to_batches()
        return list(batch.columns)

    def _without_tab(self, last: pa.Array) -> pa.Array:
        if self._wires[-1] == "boolean":
            return last
        if not pc.all(pc.ends_with(last, "\t"), min_count=0).as_py():
            raise NotPlain
        return pc.binary_slice(last.view(pa.binary()), 0, -1).view(pa.string())


def is_flat(columns: Sequence[TrinoColumn]) -> bool:
    return bool(columns) and not any(BY_NAME[column.signature.raw].wire in _NESTED for column in columns)


def _dense(rows: bytes) -> bool:
    return rows.count(b"\\", 0, _SAMPLE) * _DENSE > min(len(rows), _SAMPLE)


def _must_be_utf8(rows: bytes) -> None:
    """By Arrow, which does it many bytes at a time; no copy is made."""
    ends = pa.py_buffer(struct.pack("=qq", 0, len(rows)))
    pa.LargeBinaryArray.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(rows)]).cast(pa.large_string())


def _least_byte(rows: bytes) -> int:
    least: int = pc.min(pa.Array.from_buffers(pa.uint8(), len(rows), [None, pa.py_buffer(rows)])).as_py()
    return least


def _unescaped(rows: bytes) -> bytes:
    """The text with a byte for each escape, and a comma for the page's last bracket: the last row ends as all do. They are
    few: looking for the next is quicker than `sub`."""
    parts: list[bytes] = []
    start, escape = 0, rows.find(b"\\")
    while escape >= 0:
        match = _ESCAPE.match(rows, escape)
        if match is None:
            raise NotPlain
        found = match.group()
        parts += (rows[start:escape], _BYTES.get(found) or _character(found))
        start = match.end()
        escape = rows.find(b"\\", start)
    return b"".join((*parts, memoryview(rows)[start:-1], b","))


@lru_cache(maxsize=1024)
def _character(escape: bytes) -> bytes:
    """Of `\\uXXXX`, or of two that make one character."""
    if escape == b"\\/":
        return b"/"
    if not escape.startswith(b"\\u"):
        raise NotPlain
    units = b"".join(int(part, 16).to_bytes(2, "big") for part in escape.split(b"\\u")[1:])
    text = units.decode("utf-16-be").encode()
    if text in (b'"', b"\\", b"[", b"]", b"\n", b"\t", b"\r"):
        raise NotPlain
    return text


def _from_text(column: TrinoColumn, wire: Wire) -> FromTexts | None:
    if wire == "boolean":
        return None
    return (lambda texts: texts.cast(column.type)) if wire in _BARE else from_texts(column.signature)


def _spaced(text: bytes) -> bool:
    """First two bytes at a time, which is quick and enough for nearly every page."""
    pairs = pa.py_buffer(text)
    for start in (0, 1):
        found = pa.Array.from_buffers(pa.uint16(), (len(text) - start) // 2, [None, pairs.slice(start)])
        if pc.min(pc.bit_wise_xor(found, _QUOTE_AND_SPACE)).as_py() == 0:
            return _SPACED.search(text) is not None
    return False


def _size(column: pa.Array) -> int:
    """How many bytes its values took in the page, without quotes."""
    if pa.types.is_boolean(column.type):
        return int(5 * (len(column) - column.null_count) - column.true_count + 4 * column.null_count)
    return int(column.view(pa.binary()).total_values_length + 4 * column.null_count)


def _quoted(column: pa.Array, wire: Wire) -> int:
    """How many of its values stood in quotes."""
    if wire == "float":
        return int(pc.sum(pc.invert(pc.is_finite(column)), min_count=0).as_py())
    return 0 if wire in _BARE else len(column) - column.null_count


class _Text:
    """A column of strings with marks inside."""

    def __init__(self, column: pa.Array) -> None:
        self._column = column
        size = column.view(pa.binary()).total_values_length
        self._data: bytes = column.buffers()[2].slice(0, size).to_pybytes() if size else b""
        if b'"' in self._data:
            raise NotPlain

    @property
    def ends_in_space(self) -> bool:
        return bool(pc.any(pc.ends_with(self._column, " "), min_count=0).as_py())

    def put_back(self) -> pa.Array:
        if not any(mark in self._data for mark in _MARKS):
            return self._column
        validity, offsets, _ = self._column.buffers()
        data = pa.py_buffer(self._data.translate(_PUT_BACK))
        return pa.StringArray.from_buffers(len(self._column), offsets, data, validity, self._column.null_count)
