"""A zip file of tables, written from front to back in pieces that can be made again one by one.

An entry is raw deflate with a full flush after each piece, so that no piece needs the one before it. Sizes and sums come
after an entry's data, in ZIP64 form throughout: nothing here is limited. Read by unzip, Python and Java.
"""

import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote

LEVEL = 1
VERSION = 45  # of ZIP64
FLAGS = 0x0808  # sizes after the data; names in UTF-8
DEFLATE = 8
UNKNOWN = 0xFFFFFFFF
# An empty last block: what ends a stream that was flushed.
END_OF_ENTRY = b"\x03\x00"


@dataclass(frozen=True, slots=True)
class Entry:
    """As the directory at the end lists it."""

    crc: int
    packed: int
    size: int
    offset: int


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
    encoded = name.encode()
    fixed = struct.pack(
        "<4sHHHHHIIIHH", b"PK\3\4", VERSION, FLAGS, DEFLATE, *_dos(at), 0, UNKNOWN, UNKNOWN, len(encoded), 20
    )
    return fixed + encoded + struct.pack("<HHQQ", 1, 16, 0, 0)


def piece(data: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)


def tail(crc: int, packed: int, size: int) -> bytes:
    """What follows an entry's data; `packed` counts END_OF_ENTRY, which belongs to the data."""
    return struct.pack("<4sIQQ", b"PK\7\10", crc, packed, size)


def directory(entries: Iterable[tuple[str, Entry]], offset: int, at: datetime) -> bytes:
    central = [_central(name, entry, at) for name, entry in entries]
    size, count = sum(map(len, central)), len(central)
    zip64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, VERSION, VERSION, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, offset + size, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, UNKNOWN, UNKNOWN, 0)
    return b"".join([*central, zip64, locator, last])


def _central(name: str, entry: Entry, at: datetime) -> bytes:
    encoded = name.encode()
    extra = struct.pack("<HHQQQ", 1, 24, entry.size, entry.packed, entry.offset)
    fixed = struct.pack(
        "<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0x0300 | VERSION, VERSION, FLAGS, DEFLATE, *_dos(at), entry.crc, UNKNOWN,
        UNKNOWN, len(encoded), len(extra), 0, 0, 0, 0o644 << 16, UNKNOWN,
    )  # fmt: skip
    return fixed + encoded + extra


def _dos(at: datetime) -> tuple[int, int]:
    """Time and date as zip files have them: in steps of two seconds, from 1980 on."""
    date = (max(at.year, 1980) - 1980) << 9 | at.month << 5 | at.day
    return at.hour << 11 | at.minute << 5 | at.second // 2, date
