"""What handlers log, on its way to the control plane: lines, scrubbed, at most once a second and 64 KiB/s per worker.

Lossy on purpose: what is over the limit, or could not be sent for too long, is dropped and counted, so that neither
memory nor the control plane pays for a handler that logs in a loop.
"""

import itertools
from collections.abc import Awaitable, Callable
from uuid import UUID

import structlog

from paddock.clock import Clock
from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused, SessionUnknown
from paddock.metrics import Metrics
from paddock.worker.log_lines import LogBuffers

PERIOD = 1.0

log = structlog.get_logger(__name__)


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
