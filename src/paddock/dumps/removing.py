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
from paddock.jobs.kinds import Nothing, housekeeping, removal
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.storage.store import open_managed


class RemovePayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    dump_id: str


async def run_remove(turn: Turn[RemovePayload], db: Database, config: Config) -> Outcome:
    """Removes the files of a deleted dump, then its row."""
    # Open uploads go with the rest.
    removed = await open_managed(config).delete_below(prefix_of(turn.payload.dump_id))
    async with db.transaction() as tx:
        await dumps.dropped(tx, turn.payload.dump_id)
    return done({"files": removed.count, "bytes": removed.bytes})


REMOVE = removal(dumps.REMOVE, RemovePayload, run_remove, about="dump_id")


async def run_leftovers(turn: Turn[Nothing], db: Database, config: Config) -> Outcome:
    """Removes files of drafts that no dump has named for a while."""
    from paddock.dumps import leftovers

    return done(await leftovers.collect(db, config))


LEFTOVERS = housekeeping("collect_dump_leftovers", run_leftovers, timedelta(hours=2))


KINDS = (REMOVE, LEFTOVERS)
