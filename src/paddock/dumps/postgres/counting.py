"""Rows in what pg_dump writes, counted as they pass.

Only what stands between `COPY ... FROM stdin;` and `\\.` is rows, and only a COPY that is a statement is one: text that
merely looks like it, in a function's body, a comment or a default, is stepped over by its quotes.
"""

import ctypes
import re
from collections.abc import Callable

from paddock.dumps.postgres.names import from_sql

_OPENING = re.compile(rb"'|\"|--|\$(?:[A-Za-z_\x80-\xff][\w\x80-\xff]*)?\$|\nCOPY ")
_IDENTIFIER = rb'(?:"(?:[^"]|"")*"|[^".\s(]+)'
_COPY = re.compile(
    rb"\nCOPY (" + _IDENTIFIER + rb"\." + _IDENTIFIER + rb') +(?:\((?:[^")]|"(?:[^"]|"")*")*\) )?FROM stdin;(?=\n)'
)
# The end of the rows, and how whatever comes next begins: a longer text is found faster.
_END = b"\n\\.\n\n\n--\n-- "
_TAG_BYTES = 130
# 1,600 columns, each name quoted.
_LONGEST_COPY = 1 << 18


class Counting:
    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding
        self._left = b""
        # What ends the quotes or the comment we are in.
        self._closing = b""
        self._table: str | None = None
        self._begun = False
        self._counts: dict[str, int] = {}

    @property
    def inside(self) -> str | None:
        """The table whose rows have not ended."""
        return self._table

    def feed(self, data: bytes) -> None:
        data = self._joined(data)
        position = 0
        while 0 <= position < len(data):
            if self._table is not None:
                position = self._rows(data, position)
            elif self._closing:
                position = self._quotes(data, position)
            else:
                position = self._statements(data, position)

    def taken(self) -> dict[str, int]:
        """Rows of each table since this was asked last."""
        counts, self._counts = self._counts, {}
        return {table: rows for table, rows in counts.items() if rows}

    def _joined(self, data: bytes) -> bytes:
        left, self._left = self._left, b""
        if self._table is None or len(data) < len(_END) or _END in left + data[: len(_END)]:
            return left + data
        # Nearly always: rows go on, and there is no need to copy them for the sake of a few bytes.
        self._add(left.count(b"\n"))
        return data

    def _rows(self, data: bytes, position: int) -> int:
        found = _find(data, _END, position)
        end = found + 1 if found >= 0 else max(position, len(data) - len(_END) + 1)
        self._add(_line_ends(data, position, end))
        if found < 0:
            self._left = data[end:]
            return -1
        self._table, self._begun = None, False
        return found + len(b"\n\\.")

    def _add(self, line_ends: int) -> None:
        assert self._table is not None
        if not self._begun and line_ends:
            # The one before the first row.
            self._begun = True
            line_ends -= 1
        self._counts[self._table] = self._counts.get(self._table, 0) + line_ends

    def _quotes(self, data: bytes, position: int) -> int:
        found = data.find(self._closing, position)
        if found < 0:
            kept = len(self._closing) - 1
            self._left = data[max(position, len(data) - kept) :] if kept else b""
            return -1
        # The end of a comment may be what stands before a COPY.
        after = found if self._closing == b"\n" else found + len(self._closing)
        self._closing = b""
        return after

    def _statements(self, data: bytes, position: int) -> int:
        opening = _OPENING.search(data, position)
        if opening is None:
            self._left = data[max(position, len(data) - _TAG_BYTES) :]
            return -1
        if opening[0] == b"\nCOPY ":
            return self._copy(data, opening.start())
        self._closing = b"\n" if opening[0] == b"--" else opening[0]
        return opening.end()

    def _copy(self, data: bytes, position: int) -> int:
        command = _COPY.match(data, position)
        if command is None:
            if len(data) - position < _LONGEST_COPY:
                self._left = data[position:]
                return -1
            return position + 1
        self._table = from_sql(command[1].decode(self._encoding, "replace"))
        return command.end()


def _line_ends(data: bytes, start: int, end: int) -> int:
    # By what is left without them: `count` looks at each byte, this leaps from one to the next. Sparing the cut pays.
    if start == 0 and len(data) - end < len(_END):
        return len(data) - len(data.replace(b"\n", b"")) - data.count(b"\n", end)
    piece = data[start:end]
    return len(piece) - len(piece.replace(b"\n", b""))


def _finder() -> Callable[[bytes, bytes, int], int]:
    """The C library's search, four times as fast as Python's own, where it has one."""
    try:
        memmem = ctypes.CDLL(None).memmem
    except (OSError, AttributeError):
        return lambda data, text, start: data.find(text, start)
    memmem.restype = ctypes.c_void_p
    memmem.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t]

    def find(data: bytes, text: bytes, start: int) -> int:
        first = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
        assert first is not None
        found: int | None = memmem(first + start, len(data) - start, text, len(text))
        return -1 if found is None else found - first

    return find


_find = _finder()
