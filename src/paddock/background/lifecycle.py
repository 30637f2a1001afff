"""`lifecycle`: ends what is past its TTL, each in a transaction of its own that looks again under the lock.

Files go after the mark and before the row (`remove_files`). Where they cannot be deleted the row stays marked, and a removal
that was given up begins again at each pass.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from paddock.background.records import SQL
from paddock.background.ticks import Item, Page, Tick
from paddock.db.pool import Database
from paddock.dumps import dumps
from paddock.dumps import expiring as expiring_dumps
from paddock.exports import download_holds, expiring, mappings, plain, snapshots
from paddock.instances import watching
from paddock.instances.model import SQL as INSTANCES
from paddock.jobs.errors import Refused
from paddock.pass_metrics import pass_metrics

ACTOR = "paddock"
TOLD_BEFORE = timedelta(minutes=15)
# Instances that are asked whether somebody uses them: one that does not answer takes five seconds.
ASKED_AT_ONCE = 10


class Over(Item, Protocol):
    @property
    def id(self) -> Any: ...

    @property
    def expires_at(self) -> datetime | None: ...


async def run(tick: Tick) -> None:
    core, db = tick.core, tick.core.db
    await download_holds.forget(db)
    await tick.walk("expiring", partial(_expiring, db), partial(_tell_expiring, tick))
    await _end(tick, "instance", partial(watching.expired, db), partial(watching.expire, core), by_item=True)
    idle = partial(watching.idle, db)
    await tick.walk("idle", idle, partial(_end_idle, tick), _failed_instance, at_once=ASKED_AT_ONCE)
    await dumps.settle(core)
    await db.execute(SQL["forget_expired"])
    await _end(tick, "snapshot", partial(expiring.snapshots, db), partial(snapshots.expire, core))
    await _end(tick, "mapping", partial(expiring.mappings_of_nobody, db), partial(mappings.expire, core))
    await _end(tick, "export", partial(expiring.exports, db), partial(plain.expire, core))
    await _end(tick, "dump", partial(expiring_dumps.expired, db), partial(dumps.expire, core))
    await _remove_again(tick, "snapshot", partial(expiring.abandoned_snapshots, db), partial(snapshots.delete, core))
    await _remove_again(tick, "export", partial(expiring.abandoned_exports, db), partial(plain.delete, core))
    await _remove_again(tick, "dump", partial(expiring_dumps.abandoned, db), partial(dumps.delete, core))


async def _end(
    tick: Tick, resource_type: str, page: Page[Any], expire: Callable[[Any], Awaitable[bool]], *, by_item: bool = False
) -> None:
    """`expire` says whether the end was accepted; one that is in use is refused and comes again."""
    metrics = pass_metrics()

    async def act(item: Over) -> None:
        try:
            accepted = await expire(item if by_item else item.id)
        except Refused as refused:
            if refused.code != "not_found":
                tick.count("skipped_in_use")
                metrics.lifecycle_skipped("in_use").inc()
            return
        if accepted:
            tick.count(f"{resource_type}s_ended")
            metrics.ttl_ended[resource_type].inc()
            if item.expires_at is not None:
                metrics.enforcement_lag(resource_type).observe(max(0, (tick.now - item.expires_at).total_seconds()))

    def failed(_item: Item, _problem: Exception) -> None:
        metrics.lifecycle_failures(resource_type).inc()

    await tick.walk(f"{resource_type}s", page, act, failed)


async def _expiring(db: Database, after: Any, limit: int) -> list[watching.ById]:
    rows = await db.fetch(
        INSTANCES["expiring_instances"], TOLD_BEFORE, None if after is None else UUID(after[-1]), limit
    )
    return [watching.ById(row["id"], row["expires_at"], row) for row in rows]


async def _tell_expiring(tick: Tick, item: watching.ById) -> None:
    """Once for each end; one that was put off is told again."""
    assert item.row is not None
    async with tick.core.db.transaction() as tx:
        if await tx.fetchval(SQL["tell_expiring"], item.id, item.expires_at):
            at = item.row["expires_at"].isoformat()
            await watching.tell(tick.core, tx, item.id, item.row["owner"], "expiring", expires_at=at)
            tick.count("instances_expiring")


async def _end_idle(tick: Tick, item: watching.ById) -> None:
    """Asked first: a query in flight, or no answer, is no idleness."""
    assert item.row is not None
    metrics = pass_metrics()
    status = await watching.status_of(tick.core, tick.config, item.id)
    if status is None:
        tick.count("skipped_unreachable")
        metrics.lifecycle_skipped("unreachable").inc()
    elif await watching.is_used(tick.core, item.id, status, item.row["inactivity_timeout"]):
        await tick.core.db.execute(INSTANCES["note_activity"], item.id)
        tick.count("skipped_in_use")
        metrics.lifecycle_skipped("in_use").inc()
    elif await watching.end_idle(tick.core, item):
        tick.count("inactive_instances_ended")
        metrics.inactive_ended.inc()
        if item.expires_at is not None:
            lag = (tick.now - item.expires_at).total_seconds()
            metrics.enforcement_lag("instance").observe(max(0, lag))


def _failed_instance(_item: Item, _problem: Exception) -> None:
    pass_metrics().lifecycle_failures("instance").inc()


async def _remove_again(
    tick: Tick, resource_type: str, page: Page[Any], delete: Callable[..., Awaitable[object]]
) -> None:
    async def act(item: Over) -> None:
        await delete(item.id, actor=ACTOR, reason="taking its files away was given up")
        tick.count("removals_begun_again")

    def failed(_item: Item, _problem: Exception) -> None:
        pass_metrics().lifecycle_failures(resource_type).inc()

    await tick.walk(f"abandoned_{resource_type}s", page, act, failed)
