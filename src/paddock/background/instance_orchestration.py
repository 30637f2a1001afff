"""`instance_orchestration`: instances that wait for a snapshot which has ended. The end of a snapshot moves them at once; this is
the net."""

from functools import partial

from paddock.background.ticks import Tick
from paddock.instances import following, watching


async def run(tick: Tick) -> None:
    await tick.walk("waiting", partial(watching.late_followers, tick.core.db), partial(_follow, tick))


async def _follow(tick: Tick, item: watching.ById) -> None:
    became = await following.follow(tick.core, tick.config, item.id)
    if became in ("starting", "failed"):
        tick.count(f"instances_transitioned_to_{became}")
    elif became == "waiting":
        tick.count("instances_skipped")
