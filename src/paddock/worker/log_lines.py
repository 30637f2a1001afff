"""What handlers log, as lines, and bounded buffers for them. Used in runners, so it imports little."""

from collections import Counter
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from paddock.log import scrub, scrub_item

BYTES_PER_SECOND = 64 * 1024
MOST_PER_LINE = 8 * 1024

K = TypeVar("K", bound=Hashable)


def log_line(level: str, message: str, fields: Mapping[str, Any]) -> str:
    """`2026-01-31T12:00:00.123Z info message key=value`. Further lines of a message are indented, so that none of
    them can pass for a line of its own."""
    when = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    text = scrub(str(message), limit=MOST_PER_LINE)
    for name, value in fields.items():
        text += f" {name}={_quoted(scrub_item(name, value))}"
    text = text[:MOST_PER_LINE].replace("\n", "\n  ").replace("\x00", "\\x00")
    return f"{when}Z {level} {text.encode('utf-8', 'backslashreplace').decode()}\n"


def _quoted(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text


class LogBuffers(Generic[K]):
    """At most `most` bytes of lines between two `take`s; what is over is counted."""

    def __init__(self, most: int = BYTES_PER_SECOND) -> None:
        self._most = most
        self._left = most
        self._lines: dict[K, list[str]] = {}
        self._dropped: Counter[K] = Counter()

    def __bool__(self) -> bool:
        return bool(self._lines)

    def add(self, key: K, lines: str, dropped_bytes: int = 0) -> None:
        kept = self._lines.setdefault(key, [])
        size = len(lines.encode())
        if size <= self._left:
            self._left -= size
            kept.append(lines)
        else:
            dropped_bytes += size
        if dropped_bytes:
            self._dropped[key] += dropped_bytes

    def take(self) -> list[tuple[K, str, int]]:
        taken = [(key, "".join(lines), self._dropped[key]) for key, lines in self._lines.items()]
        self._lines, self._dropped, self._left = {}, Counter(), self._most
        return taken
