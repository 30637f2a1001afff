"""How many exports and snapshots there are, for `GET /api/ops/state`."""

from typing import Any

from paddock.db.pool import Database
from paddock.exports import plain, snapshot_states


async def by_status(db: Database) -> dict[str, Any]:
    return {
        "snapshots": {row["status"]: row["n"] for row in await db.fetch(snapshot_states.SQL["snapshot_counts"])},
        "exports": {row["status"]: row["n"] for row in await db.fetch(plain.SQL["export_counts"])},
    }
