"""Writes to the control plane, gathered: the first goes at once, what comes while it is on its way goes together.

Guarantees: an item put here stays until the fence has answered for it, through any outage; items are sent in the
order they came; an item the control plane cannot read does not hold up the others.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

import msgspec
import structlog

from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused, SessionUnknown
from paddock.worker.patience import PatientCalls

T = TypeVar("T", bound=wire.FinishItem | wire.SaveItem | wire.ReleaseItem)

MOST_PER_CALL = 500
# Not the fence's word but ours: the control plane did not take the message at all.
REFUSED = "refused"
# Nor is this: the answer had no verdict for the item.
UNANSWERED = "unanswered"

log = structlog.get_logger(__name__)


class Outbox(Generic[T]):
    def __init__(
        self,
        line: PatientCalls,
        send: Callable[[list[T]], Awaitable[wire.Verdicts]],
        settle: Callable[[list[tuple[T, wire.ItemVerdict]]], None],
        *,
        calls_in_flight: int = 1,
    ) -> None:
        self._line = line
        self._send = send
        self._settle = settle
        self._waiting: deque[T] = deque()
        self._flushes: set[asyncio.Task[None]] = set()
        self._active = 0
        self._calls_in_flight = calls_in_flight

    @property
    def idle(self) -> bool:
        return not self._waiting and not self._active

    def put(self, item: T) -> None:
        self._waiting.append(item)
        if self._active < self._calls_in_flight:
            # The task runs after everything that was put in this turn of the loop.
            self._active += 1
            flush = asyncio.get_running_loop().create_task(self._flush())
            self._flushes.add(flush)
            flush.add_done_callback(self._flushes.discard)

    async def close(self) -> None:
        flushes = list(self._flushes)
        for flush in flushes:
            flush.cancel()
        await asyncio.gather(*flushes, return_exceptions=True)

    async def _flush(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), MOST_PER_CALL))]
                await self._deliver(batch)
        finally:
            # Here and not in a callback of the task: an item put between the last look and that callback would find
            # a flush that takes nothing any more, and wait for ever.
            self._active -= 1

    async def _deliver(self, batch: list[T]) -> None:
        try:
            answer = await self._line.ask(lambda: self._try(batch))
        except (LinkRefused, SessionUnknown, msgspec.MsgspecError, TypeError, ValueError) as error:
            # The message as a whole was unreadable, or too large: halve it until the bad item stands alone.
            if len(batch) > 1:
                middle = len(batch) // 2
                await self._deliver(batch[:middle])
                await self._deliver(batch[middle:])
            else:
                verdict = wire.ItemVerdict(id=batch[0].id, verdict=REFUSED, message=str(error))
                self._settle([(batch[0], verdict)])
        else:
            self._settle(list(zip(batch, in_order(batch, answer.verdicts), strict=True)))

    async def _try(self, batch: list[T]) -> wire.Verdicts:
        try:
            return await self._send(batch)
        except (LinkDown, LinkRefused, SessionUnknown, msgspec.MsgspecError, TypeError, ValueError):
            raise
        except Exception as error:
            # A fault in the line itself. Whatever it is, an outcome is not dropped for it.
            log.exception("link_fault", items=len(batch))
            raise LinkDown(f"{type(error).__name__}: {error}") from error


def in_order(items: Sequence[T | wire.Held], verdicts: Sequence[wire.ItemVerdict]) -> list[wire.ItemVerdict]:
    """One verdict for each item. The control plane answers in the order of the items; where it does not, or answers
    less, the ids decide, and what it said nothing about is `unanswered`."""
    if len(items) == len(verdicts) and all(
        item.id == verdict.id for item, verdict in zip(items, verdicts, strict=True)
    ):
        return list(verdicts)
    by_attempt = {(verdict.id, verdict.attempt_id): verdict for verdict in verdicts}
    return [
        by_attempt.get((item.id, item.attempt_id))
        or by_attempt.get((item.id, None))
        or wire.ItemVerdict(id=item.id, verdict=UNANSWERED)
        for item in items
    ]
