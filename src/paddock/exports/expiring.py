"""What is over of exports, snapshots and mappings, page by page, for whoever ends it (`paddock.background.lifecycle`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from paddock.db.pool import Database, Statement
from paddock.exports import mappings, plain, snapshot_states

# Where a page of what expired begins: the time and the id of the last one before.
Place = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Expired:
    id: UUID
    expires_at: datetime

    @property
    def place(self) -> list[str]:
        return [self.expires_at.isoformat(), str(self.id)]


@dataclass(frozen=True, slots=True)
class Abandoned:
    """Marked as deleted, while nothing takes its files away any more."""

    id: UUID

    @property
    def place(self) -> list[str]:
        return [str(self.id)]


async def exports(db: Database, after: Place, limit: int) -> list[Expired]:
    return await _by_time(db, plain.SQL["expired_exports"], after, limit)


async def snapshots(db: Database, after: Place, limit: int) -> list[Expired]:
    return await _by_time(db, snapshot_states.SQL["expired_snapshots"], after, limit)


async def mappings_of_nobody(db: Database, after: Place, limit: int) -> list[Expired]:
    """Mappings whose time is over and of which no snapshot is left."""
    rows = await db.fetch(mappings.SQL["expired_mappings"], None if after is None else UUID(after[-1]), limit)
    return [Expired(row["id"], row["expires_at"]) for row in rows]


async def abandoned_exports(db: Database, after: Place, limit: int) -> list[Abandoned]:
    return await _abandoned(db, plain.SQL["abandoned_exports"], after, limit)


async def abandoned_snapshots(db: Database, after: Place, limit: int) -> list[Abandoned]:
    return await _abandoned(db, snapshot_states.SQL["abandoned_snapshots"], after, limit)


async def _by_time(db: Database, statement: Statement, after: Place, limit: int) -> list[Expired]:
    at, id = (None, None) if after is None else (datetime.fromisoformat(after[0]), UUID(after[1]))
    return [Expired(row["id"], row["expires_at"]) for row in await db.fetch(statement, at, id, limit)]


async def _abandoned(db: Database, statement: Statement, after: Place, limit: int) -> list[Abandoned]:
    rows = await db.fetch(statement, None if after is None else UUID(after[-1]), limit)
    return [Abandoned(row["id"]) for row in rows]
