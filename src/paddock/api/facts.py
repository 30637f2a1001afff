"""Events, who was told of them, and the subscriptions. What a caller reaches is scoped to their owner."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from paddock.api.keyset import along
from paddock.api.pagination import MAX_LIMIT
from paddock.api.tokens import Caller
from paddock.db.pool import Database, Statement, Transaction, statements
from paddock.jobs import events, reading
from paddock.jobs.acting import audit
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey, earlier, remember
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.model import Event, Job, JobId
from paddock.jobs.webhooks.keys import new_secret
from paddock.log import masked

SQL = statements("paddock.api.sql", "facts.sql")
MOST_WEBHOOKS = 100
MOST_TOLD = 20
# So many of a type are looked at for one that is no sample itself.
SAMPLED = 20
TEST_EVENT = "webhook.test"
# By whether one owner's are asked for, and those of one type.
EVENTS: Mapping[tuple[bool, bool], Statement] = {
    (False, False): along(SQL["events_along"], {}),
    (True, False): along(SQL["events_along"], {"owner": "$4"}),
    (False, True): along(SQL["events_along"], {"type": "$2"}),
    (True, True): along(SQL["events_along"], {'owner COLLATE "C"': "$4", "type": "$2"}),
}


async def events_page(
    db: Database, scope: str | None, *, before: UUID | None, subject: str | None, type: str | None, limit: int
) -> list[dict[str, Any]]:
    common = (before or GREATEST_ID, type, limit)
    if subject is not None:
        rows = await db.fetch(SQL["events_of_subject"], *common, subject, scope)
    else:
        rows = await db.fetch(EVENTS[scope is not None, type is not None], *common, scope)
    return [_event(row) for row in rows]


async def event(db: Database, caller: Caller, id: UUID) -> dict[str, Any] | None:
    row = await db.fetchrow(SQL["event"], id)
    return None if row is None or not caller.sees(row["owner"]) else _event(row)


def _event(row: asyncpg.Record) -> dict[str, Any]:
    return {**row, "data": masked(orjson.loads(row["data"]))}


async def deliveries(
    db: Database, caller: Caller, event_id: UUID, before: UUID | None = None, limit: int = MAX_LIMIT
) -> list[dict[str, Any]]:
    """Newest first, each with the state of the job that carries it."""
    return await _with_states(
        db, await db.fetch(SQL["deliveries_of_event"], event_id, caller.scope, before or GREATEST_ID, limit)
    )


async def deliveries_to(db: Database, webhook_id: UUID, before: UUID | None, limit: int) -> list[dict[str, Any]]:
    """What one webhook was told, newest first; `id` is that of the delivery's job."""
    return await _with_states(
        db, await db.fetch(SQL["deliveries_of_webhook"], webhook_id, before or GREATEST_ID, limit)
    )


async def _with_states(db: Database, rows: Sequence[asyncpg.Record]) -> list[dict[str, Any]]:
    jobs = {job.id: job for job in await reading.jobs(db, [row["job_id"] for row in rows])}
    states = [{**row, **_state(jobs.get(row["job_id"]))} for row in rows]
    for state in states:
        if state.get("kind") is not None:
            state["answered"] = None  # the status of an HTTP answer; what a kind's result means is the kind's own
    return states


STATE = (
    *("status", "attempts", "answered", "skipped", "error_code", "error_message", "hint"),
    *("next_try_at", "completed_at"),
)


def _state(job: Job | None) -> dict[str, Any]:
    """Deliveries are kept longer than the history of jobs."""
    if job is None:
        return dict.fromkeys(STATE)
    result = job.result if isinstance(job.result, Mapping) else {}
    last = job.errors[-1] if job.errors and job.status != "completed" else {}
    return {
        "status": job.status,
        "attempts": job.turn_count,
        "answered": result.get("status"),
        "skipped": result.get("skipped"),
        "error_code": job.error_code,
        "error_message": job.error_message,
        "hint": last.get("hint"),
        "next_try_at": job.due_at if job.status == "pending" else None,
        "completed_at": job.completed_at,
    }


async def delivery_counts(db: Database, caller: Caller, event_ids: Sequence[UUID]) -> dict[UUID, dict[str, int]]:
    """For each event how many of its deliveries have which status; `gone` is what history no longer holds."""
    rows = await db.fetch(SQL["deliveries_of_events"], event_ids, caller.scope, MOST_TOLD)
    statuses = {job.id: job.status for job in await reading.jobs(db, [row["job_id"] for row in rows])}
    found: dict[UUID, dict[str, int]] = {}
    for row in rows:
        counts, status = found.setdefault(row["event_id"], {}), statuses.get(row["job_id"], "gone")
        counts[status] = counts.get(status, 0) + 1
    return found


async def redeliver(
    core: Core,
    caller: Caller,
    event_id: UUID,
    webhook_ids: Sequence[UUID] | None,
    key: IdempotencyKey | None,
    *,
    kinds: Sequence[str] | None = None,
) -> list[Job]:
    """To the webhooks and kinds named, or with neither to all that were told of it."""
    if webhook_ids is not None or kinds is not None:
        webhook_ids, kinds = webhook_ids or [], kinds or []
    async with core.db.transaction() as tx:
        ids = await earlier(tx, key)
        if ids is None:
            told = await tx.fetch(SQL["webhooks_told"], event_id, caller.scope, webhook_ids)
            ids = await _deliver(core, tx, event_id, told)
            ids += await _deliver_to_kinds(core, tx, caller, event_id, kinds)
            if not ids:
                raise Refused(
                    "no_subscriber",
                    "No active webhook of yours and no kind received this event.",
                    hint="Name one with `webhook_id` or `kind`.",
                )
            await remember(tx, key, ids)
            await audit(tx, caller.actor, "redeliver", f"event:{event_id}", None, {"jobs": len(ids)})
    return await reading.jobs(core.db, ids)


async def _deliver_to_kinds(
    core: Core, tx: Transaction, caller: Caller, event_id: UUID, named: Sequence[str] | None
) -> list[JobId]:
    """To those told of it before. An operator may also name one that hears such events and was not told: perhaps its
    package came later, or it could make no delivery then."""
    row = await tx.fetchrow(SQL["event"], event_id)
    if row is None:
        return []
    event = Event(**{**row, "data": orjson.loads(row["data"])})
    told = {each["kind"] for each in await tx.fetch(SQL["kinds_told"], event_id, caller.scope)}
    wanted = told if named is None else set(named) if caller.scope is None else told & set(named)
    made = [
        await events.deliver_to_kind(core, tx, kind, event)
        for kind in core.kinds.hearing(event.type)
        if kind.name in wanted
    ]
    return [job for job in made if job is not None]


async def try_webhook(
    core: Core, caller: Caller, webhook: Mapping[str, Any], key: IdempotencyKey | None, type: str | None = None
) -> list[Job]:
    """An event of its own, for this webhook alone: a test, or a sample of this type. No kind hears of it, and no figure
    counts it among the real ones."""
    sample = {} if type is None else await _sample(core.db, webhook, type)
    async with core.db.transaction() as tx:
        ids = await earlier(tx, key)
        if ids is None:
            data = orjson.dumps(sample or {"webhook_id": str(webhook["id"])}).decode()
            [row] = await tx.fetch(
                events.SQL["insert_events"], [type or TEST_EVENT], [_subject(webhook)], [webhook["owner"]], [data]
            )
            core.count_events(tx, [TEST_EVENT])
            ids = await _deliver(core, tx, row["id"], [webhook])
            await remember(tx, key, ids)
    return await reading.jobs(core.db, ids)


def _subject(webhook: Mapping[str, Any]) -> str:
    return f"webhook:{webhook['id']}"


async def _sample(db: Database, webhook: Mapping[str, Any], type: str) -> dict[str, Any]:
    """As the newest real event says it of those that this webhook is told of; where there is none, as one might."""
    scope = None if webhook["all_owners"] else webhook["owner"]
    newest = await events_page(db, scope, before=None, subject=None, type=type, limit=SAMPLED)
    real = next((event["data"] for event in newest if not event["subject"].startswith("webhook:")), None)
    return {**(_invented(type) if real is None else real), "sample": True}


def _invented(type: str) -> dict[str, Any]:
    family, _, what = type.partition(".")
    data: dict[str, Any] = {f"{family}_id": str(UUID(int=0)), "status": what}
    if family == "job":
        data |= {"kind": "probe", "error_code": "sample" if what == "failed" else None}
    return data


async def _deliver(
    core: Core, tx: Transaction, event_id: UUID, webhooks: Sequence[Mapping[str, Any] | asyncpg.Record]
) -> list[JobId]:
    ids = await core.enqueue(tx, [events.delivery(event_id, webhook) for webhook in webhooks])
    await tx.execute(events.SQL["insert_deliveries"], [event_id] * len(ids), [each["id"] for each in webhooks], ids)
    return ids


async def webhooks_page(
    db: Database,
    scope: str | None,
    before: UUID | None,
    limit: int,
    *,
    owner: str | None = None,
    active: bool | None = None,
    text: str | None = None,
) -> list[dict[str, Any]]:
    """`text` is a part of the address or of an event type."""
    return [dict(row) for row in await db.fetch(SQL["webhooks_page"], scope, before, limit, owner, active, text)]


async def webhook(db: Database, caller: Caller, id: UUID) -> dict[str, Any] | None:
    row = await db.fetchrow(SQL["webhook"], id)
    if row is None or not caller.sees(row["owner"]):
        return None
    # One for everybody's events is the operators', though an analyst may have its owner's name.
    return None if row["all_owners"] and not caller.operator else dict(row)


async def create_webhook(
    db: Database,
    caller: Caller,
    *,
    url: str,
    types: Sequence[str],
    all_owners: bool,
    key: IdempotencyKey | None = None,
) -> dict[str, Any]:
    """With its signing secret, which is shown this once; and to whoever repeats the request with its key, because the
    first answer may have been lost."""
    secret = new_secret()
    async with db.transaction() as tx:
        made = await earlier(tx, key)
        if made is not None:
            known = await tx.fetchrow(SQL["webhook_with_secret"], made[0])
            if known is None:
                raise Refused("not_found", "The webhook that this request made was deleted.", status=404)
            return dict(known)
        if await tx.fetchval(SQL["count_webhooks"], caller.owner) >= MOST_WEBHOOKS:
            raise Refused(
                "too_many_webhooks", f"An owner has {MOST_WEBHOOKS} webhooks at most.", hint="Delete one first."
            )
        row = await tx.fetchrow(SQL["insert_webhook"], caller.owner, all_owners, url, list(types), secret)
        assert row is not None
        await remember(tx, key, [JobId(row["id"])])
        details = {"types": list(types), "all_owners": all_owners}
        await audit(tx, caller.actor, "webhook_created", f"webhook:{row['id']}", None, details)
    return {**row, "secret": secret}


async def change_webhook(
    db: Database, caller: Caller, id: UUID, *, url: str | None, types: Sequence[str] | None, active: bool | None
) -> dict[str, Any] | None:
    """What is None stays as it is, and so does the secret. An address may hold a secret of its receiver's: the audit log
    says that it changed, not to what."""
    details = {"url": url and "changed", "types": None if types is None else list(types), "active": active}
    async with db.transaction() as tx:
        row = await tx.fetchrow(SQL["change_webhook"], id, url, details["types"], active)
        if row is not None:
            told = {name: value for name, value in details.items() if value is not None}
            await audit(tx, caller.actor, "webhook_changed", f"webhook:{id}", None, told)
    return None if row is None else dict(row)


async def delete_webhook(db: Database, caller: Caller, id: UUID) -> dict[str, Any] | None:
    async with db.transaction() as tx:
        row = await tx.fetchrow(SQL["delete_webhook"], id)
        if row is not None:
            await audit(tx, caller.actor, "webhook_deleted", f"webhook:{id}")
    return None if row is None else dict(row)
