"""Ending tasks that run for ever."""

import asyncio
from typing import Any

AGAIN_SECONDS = 1.0


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancels until all have ended; what one of them failed with does not matter any more.

    Once is not enough: a connection that dies at the very moment of the cancel makes the driver raise its own error in
    its place, and a loop that outlives errors goes on."""
    while running := [task for task in tasks if not task.done()]:
        for task in running:
            task.cancel()
        await asyncio.wait(running, timeout=AGAIN_SECONDS)
    await asyncio.gather(*tasks, return_exceptions=True)  # or asyncio complains that nobody looked


async def end(*tasks: asyncio.Task[Any]) -> None:
    """As `cancel`, but raises what one of them failed with."""
    await cancel(*tasks)
    for task in tasks:
        if not task.cancelled():
            task.result()
