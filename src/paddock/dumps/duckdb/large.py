"""A row that is larger than a chunk: column by column, and large texts and blobs as they are stored, written out here.

DuckDB holds several copies of a value while it quotes it, and not all of them count for its memory limit. The bytes are
those that the expressions give, and so they must stay.
"""

import binascii
import contextlib
import ctypes
import functools
from collections.abc import Callable
from io import BytesIO

from paddock.dumps.model import Format

# A value that is larger comes alone.
LARGE = 1 << 20
# Also the size of DuckDB's blocks.
_PIECE = 1 << 18
# As glibc numbers it.
_MMAP_THRESHOLD = -3

# What is written of a value: into the row.
Write = Callable[[BytesIO, bytes], None]


def writer(type: str, format: Format, *, safe: bool) -> Write | None:
    """None: of such a value DuckDB makes the text itself."""
    match type, format:
        case "blob", "sql":
            return lambda row, value: _hex(row, value, b"unhex('", b"')")
        case "blob", "json":
            return lambda row, value: _hex(row, value, b'{"$hex": "', b'"}')
        case "blob", "csv":
            return lambda row, value: _hex(row, value, b"\\x", b"")
        case (("varchar" | "json"), "sql"):
            return _literal
        case (("varchar" | "json"), "csv"):
            return lambda row, value: _cell(row, value, safe=safe)
        case "json", "json":
            return _raw
    return None


@functools.cache
def give_back_at_once() -> None:
    """Else the C library, having seen a large value freed, keeps the room of all that are not larger."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _PIECE)


def give_back() -> None:
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _raw(row: BytesIO, value: bytes) -> None:
    row.write(value)


def _hex(row: BytesIO, value: bytes, before: bytes, after: bytes) -> None:
    row.write(before)
    row.writelines(binascii.hexlify(value[start : start + _PIECE]).upper() for start in range(0, len(value), _PIECE))
    row.write(after)


def _replaced(row: BytesIO, value: bytes, *pairs: tuple[bytes, bytes]) -> None:
    """Single bytes, so that it does not matter where pieces end."""
    for start in range(0, len(value), _PIECE):
        piece = value[start : start + _PIECE]
        for old, new in pairs:
            piece = piece.replace(old, new)
        row.write(piece)


def _literal(row: BytesIO, value: bytes) -> None:
    if b"\0" in value:
        _hex(row, value, b"decode(unhex('", b"'))")
        return
    quote = (b"'", b"''")
    if b"\r" in value:
        row.write(b"E'")
        _replaced(row, value, (b"\\", b"\\\\"), quote, (b"\r", b"\\r"))
    else:
        row.write(b"'")
        _replaced(row, value, quote)
    row.write(b"'")


def _cell(row: BytesIO, value: bytes, *, safe: bool) -> None:
    prefix = b"'" if safe and value[:1] in (b"=", b"+", b"-", b"@", b"\t", b"\r") else b""
    if not any(special in value for special in (b'"', b",", b"\r", b"\n")):
        row.write(prefix)
        row.write(value)
        return
    row.write(b'"' + prefix)
    _replaced(row, value, (b'"', b'""'))
    row.write(b'"')
