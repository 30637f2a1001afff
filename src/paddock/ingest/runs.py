"""Runs of sources: how one is started, cancelled and deleted, and how its batches are retried or skipped. What follows from
the ends of its jobs is in `pipeline.py`."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database, Transaction
from paddock.ingest import pipeline
from paddock.ingest.model import Batch, Run, batch_of, prefix_of_run, run_of
from paddock.ingest.pipeline import CANCELLED, REMOVE, RUN_INGESTER, SQL, STEP_KINDS, event
from paddock.jobs import enqueueing, events, grouping
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Draining, Refused
from paddock.jobs.events import OwnedEvent
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.model import JsonObject, NewEvent, NewJob

if TYPE_CHECKING:
    from paddock.jobs.core import Core

From = Literal["last", "start", "session"]
Runtime = Literal["local", "kubernetes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    source: str
    owner: str
    batch_size: int
    max_failed_batches: int
    begin: From = "last"
    # With `begin="session"`: JSON, to the letter.
    session: str | None = None
    limit: int | None = None
    runtime: Runtime = "local"


@dataclass(frozen=True, slots=True)
class File:
    id: UUID
    source: str
    run_id: UUID
    batch: int
    rows: int
    rejected: int
    bytes: int
    manifest: str
    sha256: str
    published_at: object


class RunActive(Refused):
    """Another run of the source is live; it is named to those who may see it, which is everybody who may run the source."""

    def __init__(self, source: str, run: UUID | None) -> None:
        super().__init__(
            "run_active",
            f"A run of '{source}' is at work already" + (f": {run}." if run is not None else "."),
            hint="Wait until it has ended, or cancel it.",
            details={} if run is None else {"run_id": str(run)},
        )


async def start(core: "Core", new: NewRun, *, actor: str, idempotency: IdempotencyKey | None = None) -> Run:
    """The run, its group, both events and the first delivery in one transaction."""
    id = await enqueueing.once(core, idempotency, lambda tx: _start(core, tx, new, actor))
    return await _existing_run(core.db, id)


async def _start(core: "Core", tx: Transaction, new: NewRun, actor: str) -> UUID:
    await _refuse_drained(tx)
    session = new.session
    if new.begin == "last":
        committed = await tx.fetchrow(SQL["committed_session"], new.source)
        session = None if committed is None else committed["session"]
    id: UUID = await tx.fetchval(SQL["new_id"])
    group = await grouping.create(tx, RUN_INGESTER, new.owner, {"run_id": str(id)})
    request = {"from": new.begin, "batch_size": new.batch_size, "limit": new.limit}
    inserted = await tx.fetchval(
        SQL["insert_run"],
        id,
        new.source,
        new.owner,
        group,
        orjson.dumps(request).decode(),
        new.batch_size,
        new.limit,
        session,
        new.max_failed_batches,
        new.runtime,
        secrets.token_bytes(32) if new.runtime == "kubernetes" else None,
    )
    if inserted is None:
        raise RunActive(new.source, await tx.fetchval(SQL["live_run"], new.source))
    begun = [
        event("IngestRunStarted", id, source=new.source),
        event("NextBatchRequested", id, source=new.source, runtime=new.runtime, batch=0),
    ]
    await events.emit(core, tx, [OwnedEvent(fact, new.owner) for fact in begun])
    await grouping.seal(core, tx, group)
    await audit(tx, actor, "ingest_started", f"ingest:{id}", details={"source": new.source, "from": new.begin})
    return id


async def _refuse_drained(tx: Transaction) -> None:
    state = await tx.fetchrow(enqueueing.SQL["drain_state"])
    if state is not None and state["drained"]:
        raise Draining(state["drain_reason"])


async def cancel(core: "Core", run: Run, *, actor: str, reason: str | None = None) -> Run:
    async def write(tx: Transaction) -> None:
        row = await _locked(tx, run.id)
        if row["status"] not in ("running", "finishing"):
            raise Refused("already_finished", f"The run is {row['status']} already; nothing was cancelled.")
        error = CANCELLED if reason is None else {**CANCELLED, "message": f"Cancelled: {reason}"}
        await core.make(tx, await pipeline.stop(tx, run.id, "cancelled", error), owner=run.owner)
        await audit(tx, actor, "ingest_cancelled", f"ingest:{run.id}", reason)

    await core.db.repeated(write)
    return await _existing_run(core.db, run.id)


async def retry_batch(core: "Core", run: Run, n: int, *, actor: str) -> Batch:
    """A failed batch goes through its hooks again, from what was fetched."""

    async def write(tx: Transaction) -> None:
        await _refuse_drained(tx)
        row = await _locked(tx, run.id)
        batch = await tx.fetchrow(SQL["lock_batch"], run.id, n)
        if batch is None:
            raise _no_batch(n)
        if batch["status"] != "failed" or row["status"] in ("stopping", "deleting"):
            raise Refused("batch_not_failed", _not_failed(n, batch, row), hint="Only a failed batch can be retried.")
        await tx.fetchrow(SQL["retry_batch"], run.id, n)
        await tx.execute(SQL["more_waits"], run.id, batch["bytes"])
        ready = event(
            "IngesterBatchReady",
            run.id,
            source=run.source,
            runtime=run.runtime,
            batch=n,
            records=batch["records"],
            bytes=batch["bytes"],
            has_more=True,
        )
        await _emit(core, tx, run, ready)
        await audit(tx, actor, "ingest_batch_retried", f"ingest:{run.id}", details={"batch": n})

    await core.db.repeated(write)
    return await _batch(core.db, run, n)


async def skip_batch(core: "Core", run: Run, n: int, *, actor: str, reason: str | None = None) -> Batch:
    """The session may pass a batch that is skipped: its records are given up."""

    async def write(tx: Transaction) -> None:
        row = await _locked(tx, run.id)
        batch = await tx.fetchrow(SQL["lock_batch"], run.id, n)
        if batch is None:
            raise _no_batch(n)
        if await tx.fetchval(SQL["skip_batch"], run.id, n) is None:
            raise Refused("batch_not_failed", _not_failed(n, batch, row), hint="Only a failed batch can be skipped.")
        await core.enqueue(tx, pipeline.remove_steps(row, [n]))
        await audit(tx, actor, "ingest_batch_skipped", f"ingest:{run.id}", reason, {"batch": n})

    await core.db.repeated(write)
    return await _batch(core.db, run, n)


async def delete(core: "Core", run: Run, *, actor: str, reason: str | None = None) -> None:
    """Marked first, then its files go, then its rows. Where the source goes on is kept."""

    async def write(tx: Transaction) -> None:
        row = await _locked(tx, run.id)
        if row["status"] not in ("completed", "failed", "cancelled", "deleting"):
            raise Refused("run_active", f"The run is {row['status']}.", hint="Cancel it first, or wait for its end.")
        session = await tx.fetchval(SQL["run_session"], run.id)
        if session is not None:
            await tx.execute(SQL["keep_session"], run.source, run.id, session)
        await tx.fetchval(SQL["run_deleting"], run.id)
        payload = {"prefixes": [prefix_of_run(run.source, str(run.id))], "run_id": str(run.id)}
        await core.enqueue(tx, [NewJob(REMOVE, payload, owner=run.owner)])
        await audit(tx, actor, "ingest_deleted", f"ingest:{run.id}", reason, {"source": run.source})

    await core.db.repeated(write)


async def dropped(tx: Transaction, id: UUID) -> None:
    """Its files are gone; now it is too. The lock comes first: the end of a batch that is being published now has written its
    file before, and it is seen, or finds no run afterwards."""
    await tx.fetchrow(SQL["lock_run"], id)
    await tx.execute(SQL["drop_files"], id)
    await tx.execute(SQL["drop_run"], id)


# Reading.


async def get(db: Database, id: UUID) -> Run | None:
    row = await db.fetchrow(SQL["run"], id)
    return None if row is None else run_of(row)


async def some(db: Database, ids: Sequence[UUID]) -> list[Run]:
    return [run_of(row) for row in await db.fetch(SQL["some_runs"], ids)]


async def page(
    db: Database,
    sources: Sequence[str],
    *,
    statuses: Sequence[str] | None = None,
    owner: str | None = None,
    text: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[Run]:
    """Newest first, of these sources. `text` is a part of a source's name or of an error."""
    wanted = None if statuses is None else list(statuses)
    asked = (before or GREATEST_ID, limit, list(sources), wanted, owner, text)
    return [run_of(row) for row in await db.fetch(SQL["runs_page"], *asked)]


async def last(db: Database, source: str) -> Run | None:
    row = await db.fetchrow(SQL["last_run"], source)
    return None if row is None else run_of(row)


async def counts(db: Database, run: Run) -> dict[str, dict[str, int]]:
    """Batches and records of a run, by the status of the batch."""
    names = ("n", "records", "passed", "rejected", "errors", "duplicates")
    return {
        row["status"]: {name: row[name] or 0 for name in names} for row in await db.fetch(SQL["batch_counts"], run.id)
    }


async def fetching(db: Database, run: Run) -> JsonObject | None:
    """What the ingester says of how far it is; None: none is at work."""
    row = await db.fetchrow(SQL["fetching_now"], run.group_id) if run.status == "running" else None
    if row is None:
        return None
    return {**({} if row["report"] is None else orjson.loads(row["report"])), "since": row["claimed_at"]}


async def batches(
    db: Database, run: Run, *, statuses: Sequence[str] | None = None, after: int = -1, limit: int = 100
) -> list[Batch]:
    wanted = None if statuses is None else list(statuses)
    return [batch_of(row) for row in await db.fetch(SQL["batches_page"], run.id, after, limit, wanted)]


async def batch(db: Database, run: Run, n: int) -> Batch | None:
    row = await db.fetchrow(SQL["batch"], run.id, n)
    return None if row is None else batch_of(row)


async def files(db: Database, source: str, *, after: UUID | None = None, limit: int = 100) -> list[File]:
    """Published ones, in the order of their publishing."""
    rows = await db.fetch(SQL["files_page"], source, after or UUID(int=0), limit)
    return [File(**row) for row in rows]


async def newest_files(db: Database, source: str, *, before: UUID | None = None, limit: int = 100) -> list[File]:
    """Those that people look for: the last ones first."""
    rows = await db.fetch(SQL["newest_files"], source, before or GREATEST_ID, limit)
    return [File(**row) for row in rows]


async def file(db: Database, id: UUID) -> File | None:
    row = await db.fetchrow(SQL["file"], id)
    return None if row is None else File(**row)


async def batch_jobs(db: Database, run: Run, n: int) -> list[JsonObject]:
    """The steps of a batch, in the order in which they were made. A fetch of several batches stands with the first."""
    rows = await db.fetch(SQL["batch_jobs"], run.group_id, n, run.id, run.ended_at, list(STEP_KINDS))
    return [dict(row) for row in rows]


async def rows_by_day(db: Database, source: str, days: int) -> list[JsonObject]:
    return [dict(row) for row in await db.fetch(SQL["rows_by_day"], source, days)]


async def schedules(db: Database, source: str, owner: str | None) -> list[JsonObject]:
    """Those that start runs of it, of this owner or of all."""
    return [dict(row) for row in await db.fetch(SQL["source_schedules"], source, owner)]


async def totals(db: Database, source: str) -> JsonObject:
    row = await db.fetchrow(SQL["source_totals"], source)
    assert row is not None
    return dict(row)


async def committed_session(db: Database, source: str) -> str | None:
    async with db.transaction() as tx:
        row = await tx.fetchrow(SQL["committed_session"], source)
    return None if row is None else row["session"]


async def _emit(core: "Core", tx: Transaction, run: Run, fact: NewEvent) -> None:
    await events.emit(core, tx, [OwnedEvent(fact, run.owner)])


async def _locked(tx: Transaction, id: UUID) -> asyncpg.Record:
    row = await tx.fetchrow(SQL["lock_run"], id)
    if row is None:
        raise Refused("not_found", "There is no such run.", status=404)
    return row


def _no_batch(n: int) -> Refused:
    return Refused("not_found", f"The run has no batch {n}.", status=404)


def _not_failed(n: int, batch: asyncpg.Record, run: asyncpg.Record) -> str:
    return f"Batch {n} is {batch['status']} and its run is {run['status']}."


async def _existing_run(db: Database, id: UUID) -> Run:
    found = await get(db, id)
    if found is None:
        raise Refused("not_found", "There is no such run.", status=404)
    return found


async def _batch(db: Database, run: Run, n: int) -> Batch:
    found = await batch(db, run, n)
    if found is None:
        raise _no_batch(n)
    return found
