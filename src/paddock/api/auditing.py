"""What people changed, by whom and why. `paddock.jobs.acting.audit` writes it, in the transaction of the change."""

from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from paddock.db.pool import Database, statements

SQL = statements("paddock.api.sql", "audit.sql")


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
    rows = await db.fetch(SQL["audit_page"], before, since, subject, action, actor, limit)
    return [{**row, "details": orjson.loads(row["details"])} for row in rows]
