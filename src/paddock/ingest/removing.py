"""Files that go: of a batch that is published, what its steps wrote on the way; of a deleted run, everything."""

from datetime import timedelta
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Database
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn
from paddock.storage.store import open_managed


class RemovePayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    prefixes: list[str]
    # The run whose rows go when its files have gone.
    run_id: str | None = None


async def run_remove(turn: Turn[RemovePayload], db: Database, config: Config) -> Outcome:
    from paddock.ingest import runs

    store = open_managed(config)
    removed = 0
    for prefix in turn.payload.prefixes:
        removed += (await store.delete_below(prefix)).count
    if turn.payload.run_id is not None:
        async with db.transaction() as tx:
            await runs.dropped(tx, UUID(turn.payload.run_id))
    return done({"files": removed})


REMOVE = Kind(
    name="remove_ingest_files",
    payload=RemovePayload,
    handler=run_remove,
    internal=True,
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=10), limit=50),
)
