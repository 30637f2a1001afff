"""`instance_stop`: the process goes first, then its folder, then the instance's use of the snapshot and its row.

One that failed because its reopening was cancelled before it began is stopped too: its process goes, and the rest stays.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.exports import snapshot_states, snapshots
from paddock.instances import dropping, moving
from paddock.instances.model import SQL
from paddock.instances.running_on import runtime_of
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused, TransientResourceError
from paddock.jobs.model import Job, NewJob
from paddock.jobs.outcomes import Outcome, again, done
from paddock.jobs.turn import Turn

PAUSES = (0.05, 0.05, 0.1, 0.1, 0.2, 0.2, 0.5)


class StopPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instance_id: str


async def run_stop(turn: Turn[StopPayload], core: Core, config: Config) -> Outcome:
    # Killed on any line it is begun again; each step finds what the one before left.
    id = UUID(turn.payload.instance_id)
    row = await core.db.fetchrow(SQL["instance_row"], id)
    if row is None or row["status"] not in ("stopping", "failed"):
        return done()
    goes = row["status"] == "stopping"
    if goes and row["made_snapshot"] and row["pending_snapshot_id"] is not None:
        await _cancel_snapshot(core, row["pending_snapshot_id"], row["deleted_by"])
    if row["pod_name"] is not None:
        runtime = runtime_of(config)
        if runtime is None:
            raise TransientResourceError(
                "This control plane has no runtime to stop the instance with.", budget="cluster"
            )
        if not await runtime.delete(row["pod_name"], keep_loaded=not goes):
            pause = PAUSES[min(turn.turn_count - 1, len(PAUSES) - 1)]
            return again(timedelta(seconds=pause), waiting_on=f"end of {row['pod_name']}")
    if goes:
        await dropping.drop(core, id, row["generation"])
    return done()


async def stop_ended(tx: Transaction, job: Job) -> Sequence[NewJob]:
    """A stop that somebody cancelled is begun again, and so is one that began when the instance was not to go yet: an instance
    that is stopping always has a job that stops it."""
    if job.status not in ("cancelled", "completed"):
        return ()
    row = await tx.fetchrow(SQL["lock_instance"], UUID(job.payload["instance_id"]))
    return () if row is None or row["status"] != "stopping" else [moving.stop_job(row)]


async def _cancel_snapshot(core: Core, id: UUID, actor: str) -> None:
    """It was made for this instance alone."""
    snapshot = await snapshot_states.get(core.db, id)
    if snapshot is not None and snapshot.live:
        try:
            await snapshots.cancel(core, snapshot, actor=actor, reason="the instance it was made for was deleted")
        except Refused as refused:
            if refused.code != "already_finished":
                raise
