"""The parts of a zip file that is written from front to back: an entry's head, what follows its data, and the directory.

Sizes and sums come after an entry's data, in ZIP64 form throughout: neither an entry nor the whole is limited. Read by
unzip, Python and Java.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

VERSION = 45  # of ZIP64
FLAGS = 0x0808  # sizes after the data; names in UTF-8
UNKNOWN = 0xFFFFFFFF
STORED: Literal[0] = 0
DEFLATED: Literal[8] = 8
Method = Literal[0, 8]


@dataclass(frozen=True, slots=True)
class ZipEntry:
    """An entry as the directory at the end lists it."""

    crc: int
    packed: int
    size: int
    offset: int


def head(name: str, method: Method, at: datetime) -> bytes:
    """What stands before an entry's data. With the flag of sizes after the data they are zero here: readers take them from
    the end."""
    encoded = name.encode()
    fixed = struct.pack(
        "<4sHHHHHIIIHH", b"PK\3\4", VERSION, FLAGS, method, *_dos(at), 0, UNKNOWN, UNKNOWN, len(encoded), 20
    )
    return fixed + encoded + struct.pack("<HHQQ", 1, 16, 0, 0)


def tail(crc: int, packed: int, size: int) -> bytes:
    """What follows an entry's data."""
    return struct.pack("<4sIQQ", b"PK\7\10", crc, packed, size)


def directory(entries: Iterable[tuple[str, ZipEntry]], offset: int, method: Method, at: datetime) -> bytes:
    """The end of the file; `offset` is where it begins."""
    central = [_central(name, entry, method, at) for name, entry in entries]
    size, count = sum(map(len, central)), len(central)
    zip64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, VERSION, VERSION, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, offset + size, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, UNKNOWN, UNKNOWN, 0)
    return b"".join([*central, zip64, locator, last])


def size_of(entries: Sequence[tuple[str, int]]) -> int:
    """How many bytes a file of these names and packed sizes has, to the byte."""
    names = sum(len(name.encode()) for name, _ in entries)
    each = 30 + 20 + 24 + 46 + 28
    return 2 * names + len(entries) * each + sum(packed for _, packed in entries) + 56 + 20 + 22


def _central(name: str, entry: ZipEntry, method: Method, at: datetime) -> bytes:
    encoded = name.encode()
    extra = struct.pack("<HHQQQ", 1, 24, entry.size, entry.packed, entry.offset)
    fixed = struct.pack(
        "<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0x0300 | VERSION, VERSION, FLAGS, method, *_dos(at), entry.crc, UNKNOWN,
        UNKNOWN, len(encoded), len(extra), 0, 0, 0, 0o644 << 16, UNKNOWN,
    )  # fmt: skip
    return fixed + encoded + extra


def _dos(at: datetime) -> tuple[int, int]:
    """Time and date as zip files have them: in steps of two seconds, from 1980 on."""
    date = (max(at.year, 1980) - 1980) << 9 | at.month << 5 | at.day
    return at.hour << 11 | at.minute << 5 | at.second // 2, date
