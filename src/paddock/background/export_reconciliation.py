"""`export_reconciliation`: what a crash of export workers left. It should find nothing.

Stale claims are the rescuer's, within seconds. A snapshot is settled in the transaction of its last job; where that failed
the group's hook is due, and this pass repeats it. With nothing to do it is two index probes.
"""

from datetime import timedelta

from paddock.background.records import SQL
from paddock.background.ticks import Tick
from paddock.pass_metrics import pass_metrics

KIND = "export"
UNPOLLED_AFTER = timedelta(seconds=60)


async def run(tick: Tick) -> None:
    await _settle(tick)
    await _look_for_unpolled(tick)


async def _settle(tick: Tick) -> None:
    unsettled: int = await tick.core.db.fetchval(SQL["unsettled_groups"], KIND)
    if not unsettled:
        return
    pass_metrics().snapshots_unsettled.inc(unsettled)
    tick.count("snapshots_ready_to_finalize", unsettled)
    tick.count("snapshots_finalized", await tick.core.finish_group_hooks(KIND))


async def _look_for_unpolled(tick: Tick) -> None:
    """Trino forgets a query that nobody polls for five minutes, so somebody must hear of it before."""
    jobs: int = await tick.core.db.fetchval(SQL["unpolled"], KIND, UNPOLLED_AFTER)
    if jobs:
        tick.count("export_jobs_unpolled", jobs)
        tick.log.error("export_jobs_unpolled", jobs=jobs, doing="start a worker that offers the kind export")
