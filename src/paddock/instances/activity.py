"""When an instance was last used: written by whoever proxied, at most once a minute."""

import time
from uuid import UUID

from paddock.db.pool import Database
from paddock.instances.model import SQL

SECONDS = 60.0
MOST_REMEMBERED = 10_000
_noted: dict[UUID, float] = {}


async def note(db: Database, id: UUID) -> None:
    now = time.monotonic()
    if now - _noted.get(id, -SECONDS) < SECONDS:
        return
    if len(_noted) >= MOST_REMEMBERED:
        _noted.clear()
    _noted[id] = now
    await db.execute(SQL["note_activity"], id)
