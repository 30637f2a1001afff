"""The loop around every pass, written once."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import structlog

from paddock.clock import Clock, SystemClock

# A tick that waits for a database that does not answer is given up after this long.
LONGEST_TICK = 20.0
# Without a tick for this long, failed ones included, the loop itself is stuck.
STUCK = 90.0

log = structlog.get_logger()


class Loop:
    """Calls `tick` every `period`, for ever. A tick that fails is logged, once until one succeeds again, and repeated:
    a database that is away never ends the loop, nor does it make it unhealthy."""

    def __init__(
        self, name: str, tick: Callable[[], Awaitable[object]], period: timedelta, *, clock: Clock | None = None
    ) -> None:
        self.name = name
        self._tick = tick
        self._period = period.total_seconds()
        self._clock = clock or SystemClock()
        self._ticked_at = self._clock.monotonic()
        # What the last tick failed with.
        self.problem: Exception | None = None

    @property
    def healthy(self) -> bool:
        return self._clock.monotonic() - self._ticked_at < STUCK

    async def run(self) -> None:
        while True:
            await self.once()
            await self._clock.sleep(self._period)

    async def once(self) -> None:
        try:
            async with asyncio.timeout(LONGEST_TICK):
                await self._tick()
        except Exception as problem:  # whatever it was, the next tick is due
            if self.problem is None:
                log.warning("pass_failed", loop=self.name, error=f"{type(problem).__name__}: {problem}")
            self.problem = problem
        else:
            if self.problem is not None:
                log.info("pass_works_again", loop=self.name)
            self.problem = None
        self._ticked_at = self._clock.monotonic()
