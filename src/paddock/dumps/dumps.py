"""Dumps: a database as a file, one row for each, beside the jobs that make it.

The row is written with its job and ended with it: `ended` is the only commit, and what it names is all that a download
reads. A file that no row names is nobody's, and `removing` takes it away.
"""

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import asyncpg
import orjson

from paddock.db.pool import Database, Transaction, statements
from paddock.dumps.model import DumpOptions, DumpPayload, Finished, Format, prefix_of
from paddock.jobs import enqueueing
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.events import receiver_of
from paddock.jobs.model import Job, JobId, JsonObject, NewEvent, NewJob

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.dumps.sql", "dumps.sql")
CALLBACK = "dump_callback"
REMOVE = "remove_dump"
ALPHABET = string.digits + string.ascii_lowercase
# Beyond every id there is.
LAST_ID = "export_~"
# Of a `Dump`, what its row does not have.
NOT_STORED = ("live", "claimed", "report", "problem", "frozen_for", "last_report")


@dataclass(frozen=True, slots=True)
class Dump:
    id: str
    job_id: JobId
    database: str
    owner: str
    format: Format
    request: JsonObject
    status: str
    key: str | None
    etag: str | None
    size: int | None
    objects: int | None
    part_size: int | None
    digest: str | None
    rows: int | None
    table_count: int | None
    # None also where there are too many to name.
    tables: dict[str, int] | None
    point_in_time: datetime | None
    restarts: int | None
    file_name: str | None
    media_type: str | None
    error: JsonObject | None
    schedule: str | None
    keep_last: int | None
    expires_at: datetime | None
    created_at: datetime
    ended_at: datetime | None
    # The job at work for it now, if there is one: its id, and what it reported last.
    live: JobId | None = None
    claimed: bool = False
    report: JsonObject | None = None
    # Why that job waits to be tried again, if it does.
    problem: str | None = None
    # So old is what the turn at work has frozen, in seconds.
    frozen_for: float | None = None
    # Of one that failed or was cancelled: what its job reported last, while its history is kept.
    last_report: JsonObject | None = None

    @property
    def shown_status(self) -> str:
        """`in_progress` from the first claim to the end, through every yield and retry."""
        if self.live is None or self.status == "deleting":
            return self.status
        return "in_progress" if self.claimed else "pending"

    @property
    def prefix(self) -> str:
        return prefix_of(self.id)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDump:
    database: str
    format: Format
    owner: str
    kept: timedelta
    options: DumpOptions
    # As it was asked for, to be shown.
    request: JsonObject
    callback_url: str | None = None
    schedule: str | None = None
    keep_last: int | None = None
    traceparent: str | None = None


async def create(core: "Core", new: NewDump, *, idempotency: IdempotencyKey | None = None) -> Dump:
    """The row and its job in one transaction."""
    job_id = await enqueueing.once(core, idempotency, lambda tx: insert(core, tx, new))
    [job] = await enqueueing.made(core, [job_id])
    found = await get(core.db, job.payload["dump_id"])
    if found is None:
        raise Refused("not_found", "What this request made was deleted since.", status=404)
    return found


async def insert(core: "Core", tx: Transaction, new: NewDump) -> JobId:
    id = await _new_row(tx, new)
    payload = DumpPayload(
        dump_id=id, database=new.database, format=new.format, options=new.options, single=len(new.options.tables) == 1
    )
    job = NewJob(
        f"dump:{new.database}",
        payload.model_dump(mode="json", exclude_defaults=True),
        owner=new.owner,
        schedule=new.schedule,
        traceparent=new.traceparent,
    )
    [job_id] = await enqueueing.enqueue(core, tx, [job], public=True)
    await tx.execute(SQL["dump_has_job"], id, job_id)
    return job_id


async def _new_row(tx: Transaction, new: NewDump) -> str:
    at: datetime = await tx.fetchval(SQL["now"])
    request = orjson.dumps(new.request).decode()
    while True:
        chance = "".join(secrets.choice(ALPHABET) for _ in range(6))
        id = f"export_{at.astimezone(UTC):%Y%m%d-%H%M%S}_{chance}"
        made = await tx.fetchval(
            SQL["insert_dump"],
            id,
            new.database,
            new.owner,
            new.format,
            request,
            new.callback_url,
            new.kept,
            new.schedule,
            new.keep_last,
        )
        if made is not None:
            return id


async def ended(tx: Transaction, job: Job) -> Sequence[NewJob | NewEvent]:
    """In the transaction that ends the job. Raising refuses a *done*: its file is then nobody's.
    Who asked to be called is, by a job of its own: whatever comes of that changes nothing here."""
    id: str = job.payload["dump_id"]
    if job.status != "completed" and await tx.fetchval(SQL["repeat_failed"], id, job.id) is not None:
        return ()
    error = None if job.error_code is None else {"code": job.error_code, "message": job.error_message}
    row = await tx.fetchrow(
        SQL["end_dump"],
        id,
        job.id,
        job.status,
        *_named(job),
        None if error is None else orjson.dumps(error).decode(),
    )
    if row is None:
        if job.status == "completed":
            raise Refused("dump_deleted", "The dump was deleted while it was made.")
        return ()
    told: list[NewJob | NewEvent] = [_fact(job)]
    if row["callback_url"] is not None:
        payload = {"dump_id": id, "receiver": receiver_of(row["callback_url"])}
        told.append(NewJob(CALLBACK, payload, owner=job.owner, parent_id=job.id))
    return told


def _named(job: Job) -> Sequence[object]:
    """What a completed job leaves to be found, in the order of `end_dump`."""
    if job.status != "completed":
        return (None,) * 13
    made = Finished.model_validate(job.result)
    if not made.key.startswith(f"{prefix_of(job.payload['dump_id'])}/"):
        raise Refused("foreign_key", "The dump's file is not where this dump's files are.")
    return (
        made.key,
        made.etag,
        made.size,
        made.objects,
        made.part_size,
        made.digest,
        made.rows,
        made.table_count,
        None if made.tables is None else orjson.dumps(made.tables).decode(),
        _time(made.point_in_time),
        made.restarts,
        made.file_name,
        made.media_type,
    )


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=UTC)


def _fact(job: Job) -> NewEvent:
    data = {
        "dump_id": job.payload["dump_id"],
        "job_id": str(job.id),
        "database": job.payload["database"],
        "status": job.status,
        "error_code": job.error_code,
    }
    return NewEvent(f"dump.{job.status}", f"dump:{job.payload['dump_id']}", data)


async def get(db: Database, id: str) -> Dump | None:
    row = await db.fetchrow(SQL["dump"], id)
    return None if row is None else _dump(row)


async def page(
    db: Database,
    databases: Sequence[str] | None,
    *,
    status: str | None = None,
    owner: str | None = None,
    text: str | None = None,
    before: str | None = None,
    limit: int = 100,
) -> list[Dump]:
    """Newest first; of some databases, or of all. `text` is a part of a name: of a database, a table, a file, a schedule; or
    of an error."""
    wanted = None if databases is None else list(databases)
    rows = await db.fetch(SQL["dumps_page"], before or LAST_ID, limit, wanted, status, owner, text)
    return [_dump(row) for row in rows]


def _dump(row: asyncpg.Record) -> Dump:
    known: dict[str, Any] = {name: row[name] for name in Dump.__slots__ if name not in NOT_STORED}
    for name in ("request", "tables", "error"):
        known[name] = None if row[name] is None else orjson.loads(row[name])
    return Dump(
        **known,
        live=row["live_id"],
        claimed=row["live_id"] is not None and (row["live_status"] != "pending" or row["live_turns"] > 0),
        report=None if row["live_report"] is None else orjson.loads(row["live_report"]),
        problem=row["live_problem"],
        last_report=None if row["last_report"] is None else orjson.loads(row["last_report"]),
        frozen_for=None if row["frozen_at"] is None else (row["now"] - _time(row["frozen_at"])).total_seconds(),
    )


async def likely_tables(db: Database, new: NewDump) -> int | None:
    """How many tables it will have: as many as were named, else as the last whole dump had. Nobody here looks into the
    database; without an earlier dump this is None."""
    if new.options.tables:
        return len(new.options.tables)
    found: int | None = await db.fetchval(SQL["last_tables"], new.database)
    return None if found is None else max(0, found - len(new.options.exclude_tables))


async def delete(core: "Core", id: str, *, actor: str, reason: str | None = None) -> JobId | None:
    """Marked first, then its file goes, then its row: whoever reads meanwhile is told. One that is being made is not
    touched: its job is the answer. Asked again, it begins again if taking the file away was given up."""
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["dump_for_update"], id)
        if row is None or (row["status"] == "deleting" and await tx.fetchval(SQL["removal_is_live"], id)):
            return None
        live: JobId | None = await tx.fetchval(SQL["live_job"], row["job_id"])
        if live is not None:
            return live
        await tx.execute(SQL["dump_deleting"], id)
        await audit(tx, actor, "delete", f"dump:{id}", reason)
        await core.enqueue(tx, [NewJob(REMOVE, {"dump_id": id})])
    return None


async def dropped(tx: Transaction, id: str) -> None:
    await tx.execute(SQL["drop_dump"], id)


async def settle(core: "Core") -> None:
    """Rows whose job ended without a word, and dumps that no schedule counts any more, get the time at which they go."""
    async with core.db.transaction() as tx:
        await tx.execute(SQL["settle_dumps"])
        await tx.execute(SQL["unclaimed_dumps"])


async def expire(core: "Core", id: str) -> bool:
    """Whether its end was accepted: its time is over, or newer ones of its schedule take its place, looked at again under
    the lock. One that is being made again waits for that end."""
    async with core.db.transaction() as tx:
        if await tx.fetchval(SQL["lock_dump"], id) is None or not await tx.fetch(SQL["dumps_to_expire"], None, 1, id):
            return False
        await tx.execute(SQL["dump_deleting"], id)
        await audit(tx, "paddock", "delete", f"dump:{id}", "its time is over")
        await core.enqueue(tx, [NewJob(REMOVE, {"dump_id": id})])
        return True
