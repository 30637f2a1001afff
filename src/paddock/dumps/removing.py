"""Files that go: of deleted dumps at once, of drafts that no dump names after a while.

Both run inside the control plane, which knows what is named. A file is kept because a dump names it or a job is at work
in its folder, and for no other reason.
"""

from datetime import timedelta

from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Database
from paddock.dumps import dumps
from paddock.dumps.model import prefix_of
from paddock.jobs import schedules
from paddock.jobs.core import Core
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.jobs.upkeep import Nothing
from paddock.storage.store import open_managed


class RemovePayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dump_id: str


async def run_remove(turn: Turn[RemovePayload], db: Database, config: Config) -> Outcome:
    # Open uploads go with the rest.
    removed = await open_managed(config).delete_below(prefix_of(turn.payload.dump_id))
    async with db.transaction() as tx:
        await dumps.dropped(tx, turn.payload.dump_id)
    return done({"files": removed.count, "bytes": removed.bytes})


REMOVE = Kind(
    name=dumps.REMOVE,
    payload=RemovePayload,
    handler=run_remove,
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=10), limit=50),
)


async def run_leftovers(turn: Turn[Nothing], db: Database, config: Config) -> Outcome:
    from paddock.dumps import leftovers

    return done(await leftovers.collect(db, config))


LEFTOVERS = Kind(
    name="collect_dump_leftovers",
    payload=Nothing,
    handler=run_leftovers,
    internal=True,
    housekeeping=True,
    serial=True,
    turn_timeout=timedelta(hours=2),
)


async def run_expiry(turn: Turn[Nothing], core: Core) -> Outcome:
    return done({"dumps": await dumps.expire(core)})


EXPIRY = Kind(
    name="expire_dumps",
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
    await schedules.ensure(core, "expire-dumps", EXPIRY.name, timedelta(minutes=1))
    await schedules.ensure(core, "collect-dump-leftovers", LEFTOVERS.name, timedelta(hours=1))
