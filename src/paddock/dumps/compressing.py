"""Compression in frames of their own: a chunk's bytes depend on the chunk alone, and a reader takes them one after
another."""

import zlib
from functools import cache
from typing import Any

from paddock.dumps.model import Compression

LEVEL = 1


def compressed(data: bytes, how: Compression) -> bytes:
    if how == "none" or not data:
        return data
    return _gzip(data) if how == "gzip" else _zstd(data)


def version(how: Compression) -> str:
    """What else than the data decides about the bytes."""
    if how == "gzip":
        return f"zlib {zlib.ZLIB_RUNTIME_VERSION}"
    return f"arrow {_arrow().__version__}" if how == "zstd" else ""


def _gzip(data: bytes) -> bytes:
    """Without a time: the same data is the same member."""
    member = zlib.compressobj(LEVEL, zlib.DEFLATED, 31)
    return member.compress(data) + member.flush()


def _zstd(data: bytes) -> bytes:
    frame: bytes = _arrow().Codec("zstd", compression_level=LEVEL).compress(data, asbytes=True)
    return frame


@cache
def _arrow() -> Any:
    import pyarrow  # here: it is large, and only a dump with zstd needs it

    return pyarrow
