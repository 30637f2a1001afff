"""What killed workers left in the managed store, and exports and snapshots whose time is over.

A draft is kept because a plain export, a snapshot or the saved state of a live job names it; anything else that is
older than a day, and than twice the longest export, goes at every pass.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from paddock.config import Config
from paddock.db.pool import Database, statements
from paddock.exports.request import limits
from paddock.jobs.model import JsonObject
from paddock.storage import leftovers
from paddock.storage.store import open_managed

SQL = statements("paddock.exports.sql", "exports.sql")
YOUNGEST = timedelta(hours=24)


async def collect(db: Database, config: Config) -> JsonObject:
    if not config.has_store:
        return {}
    longest = timedelta(seconds=(await limits(db)).max_duration_seconds)
    before = datetime.now(UTC) - max(YOUNGEST, 2 * longest)

    async def kept(drafts: Sequence[str]) -> set[str]:
        # In this order: a job that ends in between was live at the first look, or is named at the second.
        rows = await db.fetch(SQL["live_drafts"], [draft.rpartition("/")[2] for draft in drafts])
        live = {f"{row['output']}/{row['draft']}" for row in rows}
        rows = await db.fetch(SQL["named_manifests"], [f"{draft}/_manifest.json" for draft in drafts])
        return live | {row["manifest"].rpartition("/")[0] for row in rows}

    found = await leftovers.collect(open_managed(config), kept, before)
    return {"removed": found.count, "bytes": found.bytes}
