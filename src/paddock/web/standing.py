"""What every page says at its top: drain mode, and the announcement.

Remembered for a second in this process: pages must not ask the database for it each time. `forget` after a change made
here; other replicas show it a second later.
"""

import time
from dataclasses import dataclass
from datetime import datetime

import orjson
from starlette.requests import Request

from paddock.api import auditing
from paddock.api.database_problems import database_problem
from paddock.api.global_config import SQL as SETTINGS
from paddock.db.pool import Database
from paddock.jobs.enqueueing import SQL as ENQUEUEING

REMEMBERED_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    drained: bool = False
    drain_reason: str | None = None
    # None: the audit log no longer knows.
    drained_by: str | None = None
    drained_at: datetime | None = None
    announcement: str = ""
    read_at: float = float("-inf")


async def standing_of(request: Request) -> Standing:
    state = request.app.state
    known: Standing = getattr(state, "standing", None) or Standing()
    if time.monotonic() - known.read_at < REMEMBERED_SECONDS:
        return known
    try:
        state.standing = known = await _read(state.plane.core.db)
    except Exception as error:
        if database_problem(error) is None:
            raise
        # What was true is shown on; the page says itself what is wrong.
    return known


def forget(request: Request) -> None:
    request.app.state.standing = None


async def _read(db: Database) -> Standing:
    drain = await db.fetchrow(ENQUEUEING["drain_state"])
    assert drain is not None
    settings = {row["name"]: row["value"] for row in await db.fetch(SETTINGS["settings"])}
    announcement = orjson.loads(settings.get("announcement", '""'))
    by, at = await _drained_by(db) if drain["drained"] else (None, None)
    return Standing(drain["drained"], drain["drain_reason"], by, at, announcement, time.monotonic())


async def _drained_by(db: Database) -> tuple[str | None, datetime | None]:
    found = await auditing.page(db, before=None, since=None, subject=None, action="drain_on", actor=None, limit=1)
    return (found[0]["actor"], found[0]["at"]) if found else (None, None)
