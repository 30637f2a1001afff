"""Passes, driven by a test: one tick, no worker, no waiting."""

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from paddock.background import lifecycle, records
from paddock.background.ticks import Budget, Tick
from paddock.config import Config
from paddock.jobs.core import Core

Pass = Callable[[Tick], Awaitable[None]]


async def tick_of(core: Core, **fields: Any) -> Tick:
    fields.setdefault("config", Config())
    fields.setdefault("budget", Budget(timedelta(hours=1)))
    return Tick(core=core, now=await records.now(core.db), **fields)


async def passed(run: Pass, core: Core, **fields: Any) -> Counter[str]:
    """What one pass found."""
    tick = await tick_of(core, **fields)
    await run(tick)
    return tick.found


async def end_expired(core: Core, what: str) -> int:
    """How many of `what` a pass of lifecycle ended: "exports", "snapshots", "mappings" or "dumps"."""
    return (await passed(lifecycle.run, core))[f"{what}_ended"]
