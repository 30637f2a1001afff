"""Events: facts recorded in the transaction that made them true, with one delivery job for each subscriber.

The ends of jobs are facts too, but they cost a row only when somebody listens: history holds them anyway.
A delivery's own ends emit none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import asyncpg
import orjson

from paddock.db.pool import Transaction, statements
from paddock.jobs import enqueueing
from paddock.jobs.model import NewEvent, NewJob

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "events.sql")
DELIVERY_KIND = "webhook"


@dataclass(frozen=True, slots=True)
class OwnedEvent:
    event: NewEvent
    owner: str


async def emit(core: "Core", tx: Transaction, events: Sequence[OwnedEvent], *, heard_only: bool = False) -> None:
    """With `heard_only` an event nobody subscribed to leaves no row."""
    # The ids of one statement ascend in the order of its items only so far, and rows are told apart by that order.
    for start in range(0, len(events), enqueueing.MAX_BATCH):
        await _emit(core, tx, events[start : start + enqueueing.MAX_BATCH], heard_only)


async def _emit(core: "Core", tx: Transaction, events: Sequence[OwnedEvent], heard_only: bool) -> None:
    types, owners = [item.event.type for item in events], [item.owner for item in events]
    heard = await tx.fetch(SQL["listeners"], types, owners)
    if heard_only:
        wanted = sorted({row["n"] - 1 for row in heard})
        events, places = [events[n] for n in wanted], {n: place for place, n in enumerate(wanted)}
    else:
        places = {n: n for n in range(len(events))}
    if not events:
        return
    rows = await tx.fetch(
        SQL["insert_events"],
        [item.event.type for item in events],
        [item.event.subject for item in events],
        [item.owner for item in events],
        [orjson.dumps(item.event.data).decode() for item in events],
    )
    core.count_events(tx, [item.event.type for item in events])
    rows.sort(key=lambda row: row["id"])
    await _deliver(core, tx, [(rows[places[row["n"] - 1]], row) for row in heard])


async def _deliver(core: "Core", tx: Transaction, told: Sequence[tuple[asyncpg.Record, asyncpg.Record]]) -> None:
    """A delivery belongs to who subscribed: whoever made the event may not learn who listens."""
    # A batch of ends times its subscribers may be more than one submission takes; refusing it would undo the ends.
    for start in range(0, len(told), enqueueing.MAX_BATCH):
        some = told[start : start + enqueueing.MAX_BATCH]
        jobs = [
            NewJob(
                DELIVERY_KIND, {"event_id": str(event["id"]), "webhook_id": str(webhook["id"])}, owner=webhook["owner"]
            )
            for event, webhook in some
        ]
        ids = await enqueueing.enqueue(core, tx, jobs)
        await tx.execute(
            SQL["insert_deliveries"], [event["id"] for event, _ in some], [webhook["id"] for _, webhook in some], ids
        )


async def emit_ends(core: "Core", tx: Transaction, ended: Sequence[asyncpg.Record]) -> None:
    """`job.completed`, `job.failed`, `job.cancelled` of rows of end_jobs, if anyone listens."""
    facts = [
        OwnedEvent(
            NewEvent(
                f"job.{row['end_status']}",
                str(row["id"]),
                {
                    "job_id": str(row["id"]),
                    "kind": row["kind"],
                    "status": row["end_status"],
                    "error_code": row["end_code"],
                },
            ),
            row["owner"],
        )
        for row in ended
        if row["heard"] and row["kind"] != DELIVERY_KIND and not row["housekeeping"] and row["cleanup_of"] is None
    ]
    await emit(core, tx, facts, heard_only=True)
