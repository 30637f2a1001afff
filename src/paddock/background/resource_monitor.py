"""`resource_monitor`: instances that come near their memory.

What counts is what an instance holds outside its buffer pool, which fills by design and is half of its memory. Where the runtime can
grow one in place, a job of that instance does so within bounds; where it cannot, refuses or defers, the owner reads an event, and nothing failed. An
instance that died of memory is the table of ends' business.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal

import asyncpg

from paddock.background.ticks import MOST_NOTED, Tick, carried
from paddock.instances import growing, sizing, watching
from paddock.instances.running_on import runtime_of
from paddock.jobs.errors import LockHeld
from paddock.pass_metrics import pass_metrics
from paddock.runtimes.runtime import Runtime

HIGH, URGENT = 0.8, 0.9
HIGH_FOR, URGENT_FOR = timedelta(minutes=2), timedelta(minutes=1)
BETWEEN_RESIZES = timedelta(seconds=300)
# One that does not answer takes five seconds.
ASKED_AT_ONCE = 10


TIMES = ("high_since", "urgent_since", "acted_at")


@dataclass(frozen=True, slots=True)
class Pressure:
    """Since when all samples of an instance were over each threshold, when it was last acted on, and why nothing could be done
    for it: its owner reads that once for each generation."""

    high_since: datetime | None = None
    urgent_since: datetime | None = None
    acted_at: datetime | None = None
    told: str | None = None

    @classmethod
    def of(cls, noted: Any) -> "Pressure":
        known = noted if isinstance(noted, dict) else {}
        times = {name: datetime.fromisoformat(known[name]) for name in TIMES if known.get(name)}
        return cls(**times, told=known.get("told"))

    def noted(self) -> dict[str, str]:
        times = {name: at.isoformat() for name in TIMES if (at := getattr(self, name)) is not None}
        return times | ({} if self.told is None else {"told": self.told})

    def sampled(self, share: float, now: datetime) -> "Pressure":
        return Pressure(
            (self.high_since or now) if share > HIGH else None,
            (self.urgent_since or now) if share > URGENT else None,
            self.acted_at,
            self.told,
        )

    def wants(self, now: datetime) -> Literal["urgent", "proactive"] | None:
        if self.acted_at is not None and now - self.acted_at < BETWEEN_RESIZES:
            return None
        if self.urgent_since is not None and now - self.urgent_since >= URGENT_FOR:
            return "urgent"
        if self.high_since is not None and now - self.high_since >= HIGH_FOR:
            return "proactive"
        return None


async def run(tick: Tick, *, runtime: Runtime | None = None) -> None:
    found = runtime or runtime_of(tick.config)
    if found is None:
        return
    before, tick.notes = tick.notes, {}
    whole, looked_at = tick.cursor is None, set[str]()
    if lost := await growing.end_lost(tick.core.db):
        tick.log.warning("lost_growths_ended", instance_ids=[str(id) for id in lost])
        tick.count("lost_growths_ended", len(lost))

    def failed(_item: object, _problem: Exception) -> None:
        pass_metrics().resource_monitor_failures.inc()

    async def look(item: watching.ById) -> None:
        assert item.row is not None
        looked_at.add(str(item.row["generation"]))
        await _look(tick, found, before, item)

    await tick.walk("running", partial(watching.running, tick.core.db), look, failed, at_once=ASKED_AT_ONCE)
    if not whole or tick.left_at is not None:
        # Those that were not looked at keep what was known of them.
        tick.notes = carried(tick.notes, before, looked_at)


async def _look(tick: Tick, runtime: Runtime, before: dict[str, Any], item: watching.ById) -> None:
    row = item.row
    assert row is not None
    share = await _share(tick, row)
    if share is None:
        return  # unknown: no action
    key = str(row["generation"])
    pressure = Pressure.of(before.get(key)).sampled(share, tick.now)
    want = pressure.wants(tick.now)
    why = None if want is None else _why_not(runtime, row, _doubled(row))
    if want is not None and (why is None or why[0] != pressure.told) and await _act(tick, row, want, share, why):
        pressure = Pressure(acted_at=tick.now, told=pressure.told if why is None else why[0])
    if pressure.noted() and len(tick.notes) < MOST_NOTED:
        tick.notes[key] = pressure.noted()


async def _share(tick: Tick, row: asyncpg.Record) -> float | None:
    status = await watching.status_of(tick.core, tick.config, row["id"])
    held = None if status is None else status.get("outside_pool_bytes")
    if not isinstance(held, int) or held < 0:
        return None
    return float(held / (row["memory_gb"] * sizing.GB / 2))


def _doubled(row: asyncpg.Record) -> int:
    return min(2 * int(row["memory_gb"]), sizing.MOST_GB)


async def _act(tick: Tick, row: asyncpg.Record, want: str, share: float, why: tuple[str, str] | None) -> bool:
    """False: what is at work for it decides, and the next pass looks again."""
    doubled, percent = _doubled(row), round(100 * share)
    async with tick.core.db.transaction() as tx:
        if why is None:
            job = growing.grow_job(row, memory_gb=doubled, percent=percent, urgent=want == "urgent")
            try:
                async with tx.savepoint():
                    await tick.core.enqueue(tx, [job])
            except LockHeld:
                return False
            tick.count(f"{want}_resizes")
            return True
        tick.count("resizes_not_made")
        outcome, message = why
        told = {"percent": percent, "memory_gb": row["memory_gb"], "wanted_gb": doubled}
        await watching.tell(
            tick.core, tx, row["id"], row["owner"], "memory_high", **told, outcome=outcome, message=message
        )
    return True


def _why_not(runtime: Runtime, row: asyncpg.Record, doubled: int) -> tuple[str, str] | None:
    if doubled == row["memory_gb"] or row["memory_steps"] >= sizing.MOST_STEPS:
        return "bounded", f"It has {row['memory_gb']} GB and gets no more."
    if not runtime.grows:
        return "not_supported", f"{runtime.words.thing} cannot get more memory while it runs: reopen it with more."
    return None
