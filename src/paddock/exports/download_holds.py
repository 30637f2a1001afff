"""Downloads under way, of exports and of snapshots. While one moves, what it reads is not deleted.

A hold is taken under a share lock of the row it is for, and a deletion looks at the holds under that row's own lock:
whichever comes first, the other finds it. Each is renewed while it moves; what a killed server left runs out.
"""

import contextlib
from datetime import timedelta
from typing import Literal
from uuid import UUID

from paddock.db.pool import UNAVAILABLE, Database, Transaction, statements
from paddock.jobs.errors import Refused

SQL = statements("paddock.exports.sql", "downloads.sql")
# A download that stands still for longer holds up nothing any more.
HELD = timedelta(minutes=2)
MOST_NAMED = 5
What = Literal["export", "snapshot"]


async def begin(db: Database, what: What, id: UUID, *, actor: str) -> UUID:
    hold: UUID | None = await db.fetchval(SQL[f"begin_{what}"], id, actor, HELD)
    if hold is None:
        raise Refused(f"{what}_not_ready", f"The {what} is being deleted: it has no files.")
    return hold


async def keep(db: Database, hold: UUID) -> None:
    """A database that is away breaks no download: its hold runs out, or is there for a little longer."""
    with contextlib.suppress(*UNAVAILABLE):
        await db.execute(SQL["keep"], hold, HELD)


async def end(db: Database, hold: UUID) -> None:
    with contextlib.suppress(*UNAVAILABLE):
        await db.execute(SQL["end"], hold)


async def check_none(tx: Transaction, what: What, id: UUID) -> None:
    """The caller has locked the row that is to go."""
    readers = [str(row["actor"]) for row in await tx.fetch(SQL[f"live_of_{what}"], id)]
    if readers:
        raise Refused(
            f"{what}_downloading",
            f"The {what} is being downloaded by {', '.join(readers[:MOST_NAMED])}.",
            hint="Wait until that has ended.",
            details={"downloads": readers[:MOST_NAMED]},
        )


async def forget(db: Database) -> None:
    """Those that a killed server left, once they have run out."""
    await db.execute(SQL["forget"])
