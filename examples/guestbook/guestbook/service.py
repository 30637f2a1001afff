"""What people may read, whoever asks: a route, a page or a command only translates."""

from typing import Any

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.db.pool import statements

SQL = statements("guestbook", "guests.sql")


async def newest_guests(plane: ControlPlane, caller: Caller) -> list[dict[str, Any]]:
    """The newest hundred: an analyst sees their own."""
    return [dict(row) for row in await plane.core.db.fetch(SQL["newest_guests"], caller.scope)]
