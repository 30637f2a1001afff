"""A zip file of tables in pieces that can be made again one by one; `storage/zip64.py` has what stands around them.

An entry is raw deflate with a full flush after each piece, so that no piece needs the one before it.
"""

import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime
from urllib.parse import quote

from paddock.storage import zip64
from paddock.storage.zip64 import ZipEntry, tail

__all__ = ["END_OF_ENTRY", "ZipEntry", "directory", "head", "names", "piece", "tail"]

LEVEL = 1
# An empty last block: what ends a stream that was flushed. It belongs to the data: the packed size counts it.
END_OF_ENTRY = b"\x03\x00"


def names(tables: Sequence[str]) -> list[str]:
    """One for each: percent-encoded, and different also where case does not count."""
    found: list[str] = []
    taken: set[str] = {"manifest.json"}
    for table in tables:
        stem = quote(table, safe=" ()+,;=@[]!$&'")[:200].strip(" .") or "_"
        name, number = f"{stem}.csv", 1
        while name.lower() in taken:
            number += 1
            name = f"{stem}~{number}.csv"
        taken.add(name.lower())
        found.append(name)
    return found


def head(name: str, at: datetime) -> bytes:
    return zip64.head(name, zip64.DEFLATED, at)


def piece(data: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)


def directory(entries: Iterable[tuple[str, ZipEntry]], offset: int, at: datetime) -> bytes:
    return zip64.directory(entries, offset, zip64.DEFLATED, at)
