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
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.model import NewJob
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.jobs.upkeep import Nothing
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
    from paddock.exports import plain, snapshots

    store = open_managed(config)
    removed = 0
    for prefix in turn.payload.prefixes:
        removed += (await store.delete_below(prefix)).count
    async with db.transaction() as tx:
        if turn.payload.export_id is not None:
            await plain.dropped(tx, UUID(turn.payload.export_id))
        if turn.payload.snapshot_id is not None:
            await snapshots.dropped(tx, UUID(turn.payload.snapshot_id))
    return done({"files": removed})


REMOVE = Kind(
    name="remove_files",
    payload=RemovePayload,
    handler=run_remove,
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=10), limit=50),
)


async def run_leftovers(turn: Turn[Nothing], db: Database, config: Config) -> Outcome:
    from paddock.exports import leftovers

    return done(await leftovers.collect(db, config))


LEFTOVERS = Kind(
    name="collect_leftovers",
    payload=Nothing,
    handler=run_leftovers,
    internal=True,
    housekeeping=True,
    serial=True,
    turn_timeout=timedelta(hours=2),
)


async def run_expiry(turn: Turn[Nothing], core: Core) -> Outcome:
    """Exports, snapshots and mappings whose time is over."""
    from paddock.exports import mappings, plain, snapshots

    return done(
        {
            "exports": await plain.expire(core),
            "snapshots": await snapshots.expire(core),
            "mappings": await mappings.expire(core),
        }
    )


EXPIRY = Kind(
    name="expire_exports",
    payload=Nothing,
    handler=run_expiry,
    internal=True,
    housekeeping=True,
    serial=True,
    turn_timeout=timedelta(minutes=10),
)

KINDS = (REMOVE, LEFTOVERS, EXPIRY)


async def ensure_schedules(core: Core) -> None:
    """Called at every start of every replica that knows these kinds."""
    await schedules.ensure(core, "expire-exports", EXPIRY.name, timedelta(minutes=1))
    await schedules.ensure(core, "collect-leftovers", LEFTOVERS.name, timedelta(hours=1))
