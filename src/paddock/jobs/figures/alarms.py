"""Alarms of the overview that somebody has seen and dismissed.

A dismissal covers what the alarm was about then, up to the time of its newest evidence: what happens later raises the alarm
again. It holds for everybody, and is audited.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal, get_args

from paddock.db.pool import Database, statements
from paddock.jobs.acting import audit
from paddock.jobs.errors import Refused

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "alarms.sql")
Alarm = Literal["workers", "failures", "deliveries", "schedules"]


async def dismiss(core: "Core", alarm: str, up_to: datetime, *, actor: str) -> None:
    if alarm not in get_args(Alarm):
        raise Refused("not_found", "There is no such alarm.", status=404)
    async with core.db.transaction() as tx:
        await tx.execute(SQL["dismiss_alarm"], alarm, up_to)
        await audit(tx, actor, "alarm.dismiss", f"alarm:{alarm}", details={"up_to": up_to.isoformat()})


async def dismissed(db: Database) -> Mapping[str, datetime]:
    return {row["alarm"]: row["up_to"] for row in await db.fetch(SQL["dismissed_alarms"])}
