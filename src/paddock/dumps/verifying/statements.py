"""SQL text cut between its statements, a stretch of them at a time: a file of any size, loaded piece by piece.

Quotes and comments are stepped over, as the database does it. A stretch that has no end yet is read on, twice as much
each time, so that one statement of a gigabyte is looked at a few times and not a thousand.
"""

import re
from collections.abc import Callable, Iterator
from typing import BinaryIO

PIECE = 1 << 20

# One statement with its semicolon. Possessive: text is never looked at twice.
SQLITE = re.compile(
    rb"(?:[^;'\"`\[/-]++|'[^']*+'|\"[^\"]*+\"|`[^`]*+`|\[[^\]]*+\]|--[^\n]*+\n|/\*.*?\*/|/(?!\*)|-(?!-))*+;",
    re.DOTALL,
)
DUCKDB = re.compile(
    rb"(?:[^;'\"$/-]++|'[^']*+'|\"[^\"]*+\"|\$(\w*+)\$.*?\$\1\$|\$|--[^\n]*+\n|/\*.*?\*/|/(?!\*)|-(?!-))*+;",
    re.DOTALL,
)
_GAP = rb"(?:\s|--[^\n]*+\n|/\*.*?\*/)"
_TRIGGER = re.compile(
    rb"%b*+CREATE%b++(?:(?:TEMP|TEMPORARY)%b++)?TRIGGER%b" % (_GAP, _GAP, _GAP, _GAP), re.IGNORECASE | re.DOTALL
)


def stretches(
    stream: BinaryIO, statement: re.Pattern[bytes], complete: Callable[[bytes], bool] = lambda text: True
) -> Iterator[bytes]:
    """Some whole statements each time; at the end, what is left. `complete` decides about triggers, whose bodies have
    semicolons too."""
    buffer, wanted = b"", PIECE
    while piece := stream.read(wanted):
        buffer += piece
        end = _end(buffer, statement, complete)
        if not end:
            wanted = len(buffer)
            continue
        yield buffer[:end]
        buffer, wanted = buffer[end:], PIECE
    if buffer:
        yield buffer


def _end(buffer: bytes, statement: re.Pattern[bytes], complete: Callable[[bytes], bool]) -> int:
    start = end = 0
    while found := statement.match(buffer, end):
        end = found.end()
        if not _TRIGGER.match(buffer, start) or complete(buffer[start:end]):
            start = end
    return start
