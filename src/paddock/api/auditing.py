"""What people changed, by whom and why. `paddock.jobs.acting.audit` writes it, in the transaction of the change."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from paddock.api.keyset import along
from paddock.db.pool import Database, statements
from paddock.jobs.filtering import GREATEST_ID, LEAST_ID, least_id

SQL = statements("paddock.api.sql", "audit.sql")
# What may be asked for, the columns of its index before the id, and where the statement has their values.
INDEXES: Mapping[tuple[str, ...], Mapping[str, str]] = {
    (): {},
    ("subject",): {"subject": "$3"},
    ("action",): {"action": "$4"},
    ("actor",): {"actor": "$5"},
    ("actor", "action"): {'actor COLLATE "C"': "$5", "action": "$4"},
}
ALONG = {asked: along(SQL["along"], columns) for asked, columns in INDEXES.items()}


async def page(
    db: Database,
    *,
    before: UUID | None,
    since: datetime | None,
    subject: str | None,
    action: str | None,
    actor: str | None,
    limit: int,
) -> list[dict[str, Any]]:
    high, low = before or GREATEST_ID, LEAST_ID if since is None else least_id(since)
    asked = {
        name: value for name, value in (("subject", subject), ("actor", actor), ("action", action)) if value is not None
    }
    statement = SQL["among"] if subject is not None and len(asked) > 1 else ALONG[tuple(asked)]
    rows = await db.fetch(statement, high, low, subject, action, actor, limit)
    return [{**row, "details": orjson.loads(row["details"])} for row in rows]


async def of_actions(db: Database, actions: Sequence[str], *, since: datetime, limit: int) -> list[dict[str, Any]]:
    """What was done of several things, newest first, so many of each at most."""
    rows = await db.fetch(SQL["of_actions"], list(actions), least_id(since), limit, GREATEST_ID)
    return [{**row, "details": orjson.loads(row["details"])} for row in rows]
