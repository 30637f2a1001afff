"""Events: facts recorded in the transaction that made them true, with one delivery job for each subscriber: a webhook,
or a kind that hears the event's type.

The ends of jobs are facts too, but they cost a row only when somebody listens: history holds them anyway.
A delivery's own ends emit none.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import UUID

import asyncpg
import orjson
import structlog

from paddock.db.pool import DEADLOCKS, Transaction, statements
from paddock.jobs import enqueueing
from paddock.jobs.kinds import Kind
from paddock.jobs.model import Event, JobId, NewEvent, NewJob

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "events.sql")
log = structlog.get_logger()
DELIVERY_KIND = "webhook"
JOB_EVENTS: Mapping[str, str] = {
    "job.failed": "A job failed for good",
    "job.completed": "A job completed",
    "job.cancelled": "A job was cancelled",
}


@dataclass(frozen=True, slots=True)
class OwnedEvent:
    event: NewEvent
    owner: str


def event_types(kinds: Iterable[Kind]) -> dict[str, str]:
    """All there are, each with what it says in words: the ends of jobs, and what the kinds declare."""
    known = dict(JOB_EVENTS)
    for kind in kinds:
        known.update(kind.end_events)
        for type in sorted(kind.emits - known.keys()):
            known[type] = f"Emitted by jobs of kind {kind.name.partition(':')[0]}"
    return known


async def emit(core: "Core", tx: Transaction, events: Sequence[OwnedEvent], *, heard_only: bool = False) -> None:
    """With `heard_only` an event nobody subscribed to leaves no row."""
    # The ids of one statement ascend in the order of its items only so far, and rows are told apart by that order.
    for start in range(0, len(events), enqueueing.MAX_BATCH):
        await _emit(core, tx, events[start : start + enqueueing.MAX_BATCH], heard_only)


async def _emit(core: "Core", tx: Transaction, events: Sequence[OwnedEvent], heard_only: bool) -> None:
    types, owners = [item.event.type for item in events], [item.owner for item in events]
    heard = await tx.fetch(SQL["listeners"], types, owners)
    if heard_only:
        wanted = sorted(
            {row["n"] - 1 for row in heard} | {n for n, type in enumerate(types) if core.kinds.hearing(type)}
        )
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
    heard_by: dict[str, tuple[Kind, list[Event]]] = {}
    for item, row in zip(events, rows, strict=True):
        for kind in core.kinds.hearing(item.event.type):
            heard_by.setdefault(kind.name, (kind, []))[1].append(_recorded(item, row))
    for kind, some in heard_by.values():
        await _let_hear(core, tx, kind, some)


def _recorded(item: OwnedEvent, row: asyncpg.Record) -> Event:
    new = item.event
    return Event(row["id"], new.type, new.subject, row["version"], item.owner, new.data, row["at"])


async def _let_hear(core: "Core", tx: Transaction, kind: Kind, some: Sequence[Event]) -> None:
    """A subscriber that cannot be told must not undo what it is told of, and stands in no other's way. All are told at once;
    where that fails each alone, so that one event which it cannot hear takes no other from it."""
    try:
        async with tx.savepoint():
            await _deliver_to_kind(core, tx, kind, some)
    except DEADLOCKS:
        raise
    except Exception:
        if len(some) > 1:
            for event in some:
                await _let_hear(core, tx, kind, [event])
            return
        log.exception("hearing_failed", kind=kind.name, event_id=str(some[0].id), type=some[0].type)


async def deliver_to_kind(core: "Core", tx: Transaction, kind: Kind, event: Event) -> JobId | None:
    """Its delivery job; None: the kind wants none."""
    made = await _deliver_to_kind(core, tx, kind, [event])
    return made[0] if made else None


async def _deliver_to_kind(core: "Core", tx: Transaction, kind: Kind, some: Sequence[Event]) -> Sequence[JobId]:
    wanted = [(event, new) for event in some if (new := await kind.hears[event.type](tx, event)) is not None]
    for _, new in wanted:
        if new.kind != kind.name:
            raise ValueError(f"Kind '{kind.name}' made a delivery of kind '{new.kind}'; it can only make its own.")
    ids = await enqueueing.enqueue(core, tx, [new for _, new in wanted])
    if ids:
        told, owners = [event.id for event, _ in wanted], [new.owner for _, new in wanted]
        await tx.execute(SQL["insert_kind_deliveries"], told, kind.name, owners, ids)
    return ids


async def _deliver(core: "Core", tx: Transaction, told: Sequence[tuple[asyncpg.Record, asyncpg.Record]]) -> None:
    """A delivery belongs to who subscribed: whoever made the event may not learn who listens."""
    # A batch of ends times its subscribers may be more than one submission takes; refusing it would undo the ends.
    for start in range(0, len(told), enqueueing.MAX_BATCH):
        some = told[start : start + enqueueing.MAX_BATCH]
        ids = await enqueueing.enqueue(core, tx, [delivery(event["id"], webhook) for event, webhook in some])
        await tx.execute(
            SQL["insert_deliveries"], [event["id"] for event, _ in some], [webhook["id"] for _, webhook in some], ids
        )


def delivery(event_id: UUID, webhook: Mapping[str, Any] | asyncpg.Record) -> NewJob:
    """`webhook` has its id, owner and url, of which the job keeps the host: deliveries share slots by it."""
    payload = {"event_id": str(event_id), "webhook_id": str(webhook["id"]), "receiver": receiver_of(webhook["url"])}
    return NewJob(DELIVERY_KIND, payload, owner=webhook["owner"])


def receiver_of(url: str) -> str:
    """The host, in one spelling. What else a URL holds is often a secret."""
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


async def emit_ends(core: "Core", tx: Transaction, ended: Sequence[asyncpg.Record]) -> None:
    """`job.completed`, `job.failed`, `job.cancelled` of rows of end_jobs, if anyone listens."""
    deliveries = await _deliveries_to_kinds(core, tx, ended)
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
        if row["kind"] != DELIVERY_KIND
        and row["id"] not in deliveries
        and not row["housekeeping"]
        and row["cleanup_of"] is None
    ]
    await emit(core, tx, facts, heard_only=True)


async def _deliveries_to_kinds(core: "Core", tx: Transaction, ended: Sequence[asyncpg.Record]) -> set[UUID]:
    """Which of them are. A kind that hears events may have other jobs too, and the ends of those are told."""
    hearing = [row["id"] for row in ended if (kind := core.kinds.get(row["kind"])) is not None and kind.hears]
    return {row["job_id"] for row in await tx.fetch(SQL["deliveries_among"], hearing)} if hearing else set()


def ends_are_heard(core: "Core") -> bool:
    """Whether some kind hears the ends of jobs; of webhooks the statements know."""
    return any(core.kinds.hearing(type) for type in JOB_EVENTS)
