"""Several transfers at once."""

import asyncio
from collections.abc import Coroutine, Iterable


async def together(transfers: Iterable[Coroutine[object, object, object]]) -> None:
    """Fails with what the first one said that failed, as it said it: a TaskGroup would wrap that, and nobody could tell an
    outage from a refusal. All have ended when this returns, so that their folder may go."""
    tasks = [asyncio.create_task(transfer) for transfer in transfers]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
