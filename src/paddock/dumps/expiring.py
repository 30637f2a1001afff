"""Which dumps are over, page by page, for whoever ends them (`paddock.background.lifecycle`); and how many there are."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddock.db.pool import Database
from paddock.dumps.dumps import SQL

Place = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class ExpiredDump:
    """`expires_at` is None where newer ones of its schedule take its place, or where it is only taken away again."""

    id: str
    expires_at: datetime | None = None

    @property
    def place(self) -> list[str]:
        return [self.id]


async def expired(db: Database, after: Place, limit: int) -> list[ExpiredDump]:
    rows = await db.fetch(SQL["dumps_to_expire"], None if after is None else after[0], limit, None)
    return [ExpiredDump(row["id"], row["expires_at"]) for row in rows]


async def abandoned(db: Database, after: Place, limit: int) -> list[ExpiredDump]:
    """Marked as deleted, while nothing takes their file away any more."""
    rows = await db.fetch(SQL["abandoned_dumps"], None if after is None else after[0], limit)
    return [ExpiredDump(row["id"]) for row in rows]


async def by_status(db: Database) -> dict[str, Any]:
    return {"dumps": {row["status"]: row["n"] for row in await db.fetch(SQL["dump_counts"])}}
