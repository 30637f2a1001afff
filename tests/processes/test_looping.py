"""The loop around every pass: it never ends by itself, and says when it stands still."""

import asyncio
from datetime import timedelta

from paddock.background.looping import STUCK, Loop
from paddock.clock import ManualClock


async def test_a_tick_that_fails_is_repeated_and_the_loop_stays_healthy() -> None:
    clock, ticks = ManualClock(), 0

    async def tick() -> None:
        nonlocal ticks
        ticks += 1
        if ticks <= 3:
            raise ConnectionRefusedError("the database is away")

    loop = Loop("test", tick, timedelta(seconds=1), clock=clock)
    running = asyncio.create_task(loop.run())
    await clock.advance(2)
    assert (ticks, loop.problem is not None, loop.healthy) == (3, True, True)
    await clock.advance(2)
    assert (ticks, loop.problem, loop.healthy) == (5, None, True)
    running.cancel()


async def test_a_loop_without_ticks_is_not_healthy() -> None:
    clock = ManualClock()
    loop = Loop("test", asyncio.Event().wait, timedelta(seconds=1), clock=clock)
    running = asyncio.create_task(loop.run())
    await clock.advance(STUCK + 1)
    assert not loop.healthy
    running.cancel()
