"""What a handler logged, as lines to show: nothing in them can move the cursor, colour the page or pass for markup.

The text of all lines together is the log again, so that copying it copies what was there.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from paddock.jobs.logs import Chunk

# Terminal control: CSI (colours, cursor), OSC (titles, links) up to its end, other escapes of two characters.
ESCAPES = re.compile(r"\x1b\[[0-9;:?<=>!]*[ -/]*[@-~]|\x1b\][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)?|\x1b[ -/]*[0-~]")
# What is left of the control characters is shown as their pictures; tabs are harmless.
PICTURES = {code: 0x2400 + code for code in range(0x20) if code not in (0x09, 0x0A)} | {0x7F: 0x2421}
LINE = re.compile(
    r"(\d{4}-\d\d-\d\dT)(\d\d:\d\d:\d\d(?:\.\d+)?Z) (debug|info|warning|error|critical) (.*)\Z", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class LogLine:
    """`date`, `clock` and `level` are empty for the further lines of a message."""

    text: str
    date: str = ""
    clock: str = ""
    level: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """What one attempt logged in a row."""

    attempt_id: UUID
    worker: str | None
    at: datetime
    lines: Sequence[LogLine]
    dropped_bytes: int = 0


def parts(chunks: Sequence[Chunk], workers: Mapping[UUID, str]) -> list[Part]:
    found: list[Part] = []
    for chunk in chunks:
        lines, dropped = list(_lines(chunk.lines)), chunk.dropped_bytes
        if found and found[-1].attempt_id == chunk.attempt_id:
            last = found.pop()
            lines, dropped = [*last.lines, *lines], dropped + last.dropped_bytes
            found.append(Part(chunk.attempt_id, last.worker, last.at, lines, dropped))
        else:
            found.append(Part(chunk.attempt_id, workers.get(chunk.attempt_id), chunk.at, lines, dropped))
    return found


def _lines(text: str) -> Iterator[LogLine]:
    for line in harmless(text).removesuffix("\n").split("\n"):
        known = LINE.match(line)
        yield LogLine(line) if known is None else LogLine(known[4], known[1], known[2], known[3])


def harmless(text: str) -> str:
    plain = ESCAPES.sub("", text.replace("\r\n", "\n"))
    return plain.translate(PICTURES)
