"""What killed workers left in the managed store, and exports and snapshots whose time is over.

A draft is kept because a capability needs it: of exports, because a plain export, a snapshot or the saved state of a live
job names it. Anything else that is older than a day, and than twice the longest export, goes at every pass. While a
capability is missing that has tables in this database, nobody can say what it needs, and nothing is removed.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import structlog

from paddock.capability import CORE, broken, capabilities, each
from paddock.config import Config
from paddock.db.pool import Database, statements
from paddock.exports.request import limits
from paddock.jobs.model import JsonObject
from paddock.storage import leftovers
from paddock.storage.store import open_managed

SQL = statements("paddock.exports.sql", "exports.sql")
log = structlog.get_logger()
YOUNGEST = timedelta(hours=24)


async def collect(db: Database, config: Config) -> JsonObject:
    if not config.has_store:
        return {}
    longest = timedelta(seconds=(await limits(db)).max_duration_seconds)
    before = datetime.now(UTC) - max(YOUNGEST, 2 * longest)

    async def kept(drafts: Sequence[str]) -> set[str]:
        needed = {draft for _, needs in each("kept_drafts") for draft in await needs(db, drafts)}
        # Asked last: a capability may be found missing only when it is asked for what it needs.
        return {*drafts} if await missing(db) else needed

    found = await leftovers.collect(open_managed(config), kept, before)
    collected: JsonObject = {"removed": found.count, "bytes": found.bytes}
    if gone := await missing(db):
        log.warning("leftovers_not_collected", missing=gone)
        collected["waiting_for"] = gone
    return collected


async def missing(db: Database) -> list[str]:
    """Capabilities that cannot be loaded here, and those whose tables are in the database without their package."""
    owners = {row["capability"] for row in await db.fetch(SQL["owners_of_tables"])}
    return sorted({*broken(), *owners} - {CORE, *(capability.name for capability in capabilities())})


async def kept_drafts(db: Database, drafts: Sequence[str]) -> set[str]:
    """In this order: a job that ends in between was live at the first look, or is named at the second."""
    rows = await db.fetch(SQL["live_drafts"], [draft.rpartition("/")[2] for draft in drafts])
    live = {f"{row['output']}/{row['draft']}" for row in rows}
    rows = await db.fetch(SQL["named_manifests"], [f"{draft}/_manifest.json" for draft in drafts])
    return live | {row["manifest"].rpartition("/")[0] for row in rows}
