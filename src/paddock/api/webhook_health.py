"""How the deliveries of a webhook went of late. Bounded: of each only the newest are looked at."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from paddock.api.facts import SQL
from paddock.db.pool import Database

WITHIN = timedelta(days=1)
MOST_DELIVERIES = 200


@dataclass(frozen=True, slots=True)
class Health:
    """Of the deliveries made in the last day. Not `complete`: only the newest were counted.

    `failing_since` is the first of the failures that no success has followed; one that is tried again is a failure too.
    """

    delivered: int = 0
    failed: int = 0
    retrying: int = 0
    under_way: int = 0
    skipped: int = 0
    complete: bool = True
    last_error: str | None = None
    last_error_code: str | None = None
    last_error_at: datetime | None = None
    failing_since: datetime | None = None

    @property
    def counted(self) -> int:
        return self.delivered + self.failed + self.retrying + self.under_way + self.skipped


async def health(db: Database, webhook_ids: Sequence[UUID]) -> dict[UUID, Health]:
    rows = await db.fetch(SQL["outcomes_of_webhooks"], WITHIN, MOST_DELIVERIES, webhook_ids)
    by_webhook: dict[UUID, list[asyncpg.Record]] = {id: [] for id in webhook_ids}
    for row in rows:
        by_webhook[row["webhook_id"]].append(row)
    return {id: _summed(found) for id, found in by_webhook.items()}


def _summed(newest_first: Sequence[asyncpg.Record]) -> Health:
    counts = Counter(_outcome(row) for row in newest_first)
    found = Health(
        delivered=counts["delivered"],
        failed=counts["failed"],
        retrying=counts["retrying"],
        under_way=counts["under_way"],
        skipped=counts["skipped"],
        complete=len(newest_first) < MOST_DELIVERIES,
    )
    failures = [row for row in newest_first if _outcome(row) in ("failed", "retrying")]
    if not failures:
        return found
    last = failures[0]
    return replace(
        found,
        last_error=last["error_message"],
        last_error_code=last["error_code"],
        last_error_at=last["created_at"],
        failing_since=_failing_since(newest_first),
    )


def _failing_since(newest_first: Iterable[asyncpg.Record]) -> datetime | None:
    since: datetime | None = None
    for row in newest_first:
        outcome = _outcome(row)
        if outcome == "delivered":
            break
        if outcome in ("failed", "retrying"):
            since = row["created_at"]
    return since


def _outcome(row: asyncpg.Record) -> str:
    if row["status"] == "completed":
        return "delivered"
    if row["status"] == "skipped":
        return "skipped"
    if row["status"] in ("failed", "cancelled"):
        return "failed"
    return "retrying" if row["failures"] else "under_way"
