"""What a request's `Range` asks of a file, for who serves one."""

import re
from dataclasses import dataclass

_RANGE = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})\Z")


@dataclass(frozen=True, slots=True)
class ByteRange:
    """Which bytes to send, and how the answer's head tells of them. 416: none, and none of the headers but its own."""

    status: int
    start: int
    length: int
    headers: dict[str, str]


def requested_range(header: str | None, if_range: str | None, etag: str, size: int) -> ByteRange:
    """A part only of the file that the asker has another part of."""
    wanted = parse(header) if if_range in (None, etag) else None
    if wanted is None:
        return ByteRange(200, 0, size, {"Content-Length": str(size)})
    start, length = span(*wanted, size)
    if not length:
        return ByteRange(416, start, 0, {"Content-Range": f"bytes */{size}"})
    told = {"Content-Range": f"bytes {start}-{start + length - 1}/{size}", "Content-Length": str(length)}
    return ByteRange(206, start, length, told)


def parse(header: str | None) -> tuple[int | None, int | None] | None:
    """First and last byte; a last one alone is a length from the end. None: the whole file, also where the header says
    nothing we know: another unit, several ranges, an end before its start."""
    match = None if header is None else _RANGE.match(header.strip())
    if match is None or match[1] == match[2] == "":
        return None
    first, last = (int(digits) if digits else None for digits in match.groups())
    return None if first is not None and last is not None and last < first else (first, last)


def span(first: int | None, last: int | None, size: int) -> tuple[int, int]:
    """Start and length, which is 0 where the file has nothing of it."""
    if first is None:
        length = min(last or 0, size)
        return size - length, length
    return first, max(0, min(size if last is None else last + 1, size) - first)
