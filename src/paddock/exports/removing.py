"""Files that go: of deleted exports and snapshots at once, of drafts that nobody names after a while.

Both run inside the control plane, which knows what is named: `remove_files` for what somebody deleted, then its row;
`collect_leftovers` for what a killed worker left. Nothing is judged by job history: a draft is kept because an export,
a snapshot or the saved state of a live job names it, and for no other reason.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Database
from paddock.jobs import kinds
from paddock.jobs.kinds import Nothing, housekeeping
from paddock.jobs.model import NewJob
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.pass_metrics import pass_metrics
from paddock.storage.store import open_managed


class RemovePayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prefixes: list[str]
    export_id: str | None = None
    snapshot_id: str | None = None


def removal(prefixes: Sequence[str], *, export_id: str | None = None, snapshot_id: str | None = None) -> NewJob:
    """A job that removes all under these prefixes of the managed store, then the row they belonged to."""
    payload = RemovePayload(prefixes=list(prefixes), export_id=export_id, snapshot_id=snapshot_id)
    return NewJob("remove_files", payload.model_dump(exclude_none=True))


async def run_remove(turn: Turn[RemovePayload], db: Database, config: Config) -> Outcome:
    """Removes the files of a deleted export or snapshot, then its row."""
    from paddock.exports import plain, snapshots

    store = open_managed(config)
    try:
        removed = sum([(await store.delete_below(prefix)).count for prefix in turn.payload.prefixes])
    except Exception:
        if turn.payload.snapshot_id is not None:
            pass_metrics().snapshot_cleanup_failures.inc()
        raise
    async with db.transaction() as tx:
        if turn.payload.export_id is not None:
            await plain.dropped(tx, UUID(turn.payload.export_id))
        if turn.payload.snapshot_id is not None:
            await snapshots.dropped(tx, UUID(turn.payload.snapshot_id))
    return done({"files": removed})


REMOVE = kinds.removal("remove_files", RemovePayload, run_remove)


async def run_leftovers(turn: Turn[Nothing], db: Database, config: Config) -> Outcome:
    """Removes files of drafts that nothing has named for a while."""
    from paddock.exports import leftovers

    return done(await leftovers.collect(db, config))


LEFTOVERS = housekeeping("collect_leftovers", run_leftovers, timedelta(hours=2))


KINDS = (REMOVE, LEFTOVERS)
