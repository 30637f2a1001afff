"""What handlers log, on its way to the control plane: lines, scrubbed, at most once a second and 64 KiB/s per worker.

Lossy on purpose: what is over the limit, or could not be sent for too long, is dropped and counted, so that neither
memory nor the control plane pays for a handler that logs in a loop.
"""

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import structlog

from paddock.clock import Clock
from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused, SessionUnknown
from paddock.log import scrub, scrub_item
from paddock.metrics import Metrics

BYTES_PER_SECOND = 64 * 1024
MOST_PER_LINE = 8 * 1024
PERIOD = 1.0

log = structlog.get_logger(__name__)


def log_line(level: str, message: str, fields: Mapping[str, Any]) -> str:
    """`2026-01-31T12:00:00.123Z info message key=value`. Further lines of a message are indented, so that none of
    them can pass for a line of its own."""
    when = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
    text = scrub(str(message), limit=MOST_PER_LINE)
    for name, value in fields.items():
        text += f" {name}={_shown(scrub_item(name, value))}"
    text = text[:MOST_PER_LINE].replace("\n", "\n  ").replace("\x00", "\\x00")
    return f"{when}Z {level} {text.encode('utf-8', 'backslashreplace').decode()}\n"


def _shown(value: object) -> str:
    text = str(value)
    return repr(text) if not text or any(c.isspace() for c in text) else text


K = TypeVar("K", bound=Hashable)


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


class Shipper:
    """Sends a worker's lines once a second. `seq` rises with every item: a repeat after a lost answer is told from
    new lines by it."""

    def __init__(self, send: Callable[[wire.Logs], Awaitable[None]], clock: Clock, metrics: Metrics) -> None:
        self._send = send
        self._clock = clock
        self._metrics = metrics
        self._buffers: LogBuffers[tuple[UUID, UUID]] = LogBuffers()
        self._unsent: list[wire.LogItem] = []
        self._seq = itertools.count(1)

    def add(self, job_id: UUID, attempt_id: UUID, lines: str, dropped_bytes: int = 0) -> None:
        self._buffers.add((job_id, attempt_id), lines, dropped_bytes)

    async def run(self) -> None:
        while True:
            await self._clock.sleep(PERIOD)
            await self.flush()

    async def flush(self) -> int:
        """Sends what there is, and says how many items that was. While something could not be sent, new lines wait
        in the buffers, which are bounded."""
        if not self._unsent:
            self._unsent = [self._item(*taken) for taken in self._buffers.take()]
        if not self._unsent:
            return 0
        items = self._unsent
        try:
            await self._send(wire.Logs(items=items))
        except LinkDown:
            return 0
        except (LinkRefused, SessionUnknown) as error:
            log.warning("logs_refused", error=str(error), items=len(items))
        self._unsent = []
        self._metrics.log_bytes_dropped.inc(sum(item.dropped_bytes for item in items))
        return len(items)

    def _item(self, key: tuple[UUID, UUID], lines: str, dropped_bytes: int) -> wire.LogItem:
        return wire.LogItem(id=key[0], attempt_id=key[1], seq=next(self._seq), lines=lines, dropped_bytes=dropped_bytes)
