"""Time as an argument. Loops take a `Clock`, so that tests drive them without waiting.

This clock decides when a process looks again, never what is true of a job: that is the database's clock.
"""

import asyncio
import heapq
import itertools
import time
from typing import Protocol


class Clock(Protocol):
    def monotonic(self) -> float: ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class ManualClock:
    """Stands still until told. Sleepers wake in the order of their deadlines, then of going to sleep."""

    def __init__(self, start: float = 0.0) -> None:
        self._now = start
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def monotonic(self) -> float:
        return self._now

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), woken))
        await woken

    @property
    def sleeping(self) -> int:
        return sum(not woken.done() for _, _, woken in self._sleepers)

    async def advance(self, seconds: float) -> None:
        """Lives through every deadline on the way: a loop that sleeps 1 s ticks five times in `advance(5)`."""
        await self.settle()
        end = self._now + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            self._wake(self._sleepers[0][0])
            await self.settle()
        self._now = max(self._now, end)

    def jump(self, seconds: float) -> None:
        """Goes there at once, as a process that was suspended sees it: that same loop ticks once."""
        self._wake(self._now + seconds)

    async def settle(self) -> None:
        """Lets tasks run until they wait. Fifty turns of the loop are far more than one tick takes."""
        for _ in range(50):
            await asyncio.sleep(0)

    def _wake(self, now: float) -> None:
        self._now = max(self._now, now)
        while self._sleepers and self._sleepers[0][0] <= self._now:
            _, _, woken = heapq.heappop(self._sleepers)
            if not woken.done():  # a cancelled sleeper stays in the heap until its time
                woken.set_result(None)
