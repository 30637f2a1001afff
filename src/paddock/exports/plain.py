"""Plain exports: a query or a table, and the files it became. One row for each, beside the jobs that make it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database, Transaction, statements
from paddock.exports import removing
from paddock.exports.model import ExportPayload, Target, output_of_export
from paddock.jobs import enqueueing, reading
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.model import NORMAL, Job, JobId, JsonObject, NewJob

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.exports.sql", "exports.sql")
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class Export:
    id: UUID
    job_id: JobId
    owner: str
    engine: str
    role: str | None
    request: JsonObject
    status: str
    rows: int | None
    bytes: int | None
    files: int | None
    manifest: str | None
    manifest_sha256: str | None
    error: JsonObject | None
    ttl: timedelta | None
    expires_at: datetime | None
    created_at: datetime
    ended_at: datetime | None
    # The job at work for it now, if there is one.
    job: Job | None = None

    @property
    def shown_status(self) -> str:
        """`running` while a job has it, whatever an earlier one came to."""
        if self.job is None or self.status == "deleting":
            return self.status
        return "pending" if self.job.status == "pending" and self.job.turn_count == 0 else "running"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewExport:
    owner: str
    role: str | None
    # All but the output, which this module gives.
    payload: JsonObject
    request: JsonObject
    ttl: timedelta | None
    quota_bytes: int | None = None
    priority: int = NORMAL
    tags: Sequence[str] = ()
    schedule: str | None = None
    traceparent: str | None = None

    @property
    def target(self) -> Target | None:
        found = self.payload.get("destination")
        return None if found is None else Target.model_validate(found)


async def create(core: "Core", new: NewExport, *, idempotency: IdempotencyKey | None = None) -> Export:
    """The row and its job in one transaction."""

    async def write(tx: Transaction) -> JobId:
        before = await enqueueing.earlier(tx, idempotency)
        if before is not None:
            return before[0]
        job_id = await insert(core, tx, new)
        await enqueueing.remember(tx, idempotency, [job_id])
        return job_id

    [job] = await enqueueing.made(core, [await core.db.repeated(write)])
    found = await get(core.db, UUID(job.payload["export_id"]))
    if found is None:
        raise Refused("not_found", "What this request made was deleted since.", status=404)
    return found


async def insert(core: "Core", tx: Transaction, new: NewExport) -> JobId:
    await _check_quota(tx, new)
    id: UUID = await tx.fetchval(SQL["new_id"])
    payload = ExportPayload.model_validate(
        {**new.payload, "export_id": str(id), "output": output_of_export(new.owner, str(id))}
    )
    job = NewJob(
        "export",
        payload.model_dump(mode="json", exclude_defaults=True),
        owner=new.owner,
        role=new.role,
        priority=new.priority,
        tags=new.tags,
        schedule=new.schedule,
        traceparent=new.traceparent,
    )
    [job_id] = await enqueueing.enqueue(core, tx, [job], public=True)
    request = orjson.dumps(new.request).decode()
    await tx.execute(SQL["insert_export"], id, job_id, new.owner, payload.engine, new.role, request, new.ttl)
    return job_id


async def _check_quota(tx: Transaction, new: NewExport) -> None:
    if new.quota_bytes is None:
        return
    await tx.execute(SQL["lock_quota"], new.owner)
    [(held, coming)] = await tx.fetch(SQL["owner_bytes"], new.owner)
    if held + coming >= new.quota_bytes:
        waiting = f", those being made {coming:,}" if coming else ""
        raise Refused(
            "quota_exceeded",
            f"Your exports hold {held:,} bytes{waiting}, and {new.quota_bytes:,} are allowed.",
            hint="Delete some (paddock exports rm), give them a shorter ttl, or wait for those being made.",
        )


async def ended(tx: Transaction, job: Job) -> None:
    """In the transaction that ends the job. Raising refuses a *done*: its files are then nobody's."""
    result = job.result if isinstance(job.result, dict) else {}
    error = None if job.error_code is None else {"code": job.error_code, "message": job.error_message}
    id = UUID(job.payload["export_id"])
    if job.status != "completed" and await tx.fetchval(SQL["repeat_failed"], id, job.id) is not None:
        return
    changed = await tx.fetchval(
        SQL["end_export"],
        id,
        job.id,
        job.status,
        result.get("rows"),
        result.get("bytes"),
        result.get("files"),
        result.get("manifest"),
        result.get("sha256"),
        None if error is None else orjson.dumps(error).decode(),
    )
    if changed is None and job.status == "completed":
        raise Refused("export_deleted", "The export was deleted while it was made.")


async def get(db: Database, id: UUID) -> Export | None:
    row = await db.fetchrow(SQL["export"], id)
    return None if row is None else (await _with_jobs(db, [row]))[0]


async def page(db: Database, owner: str | None, *, before: UUID | None = None, limit: int = 100) -> list[Export]:
    """Newest first; of one owner, or everybody's. A long query is cut."""
    if owner is None:
        rows = await db.fetch(SQL["exports_page"], before or GREATEST_ID, limit)
    else:
        rows = await db.fetch(SQL["exports_page_of_owner"], before or GREATEST_ID, limit, owner)
    return await _with_jobs(db, rows)


async def _with_jobs(db: Database, rows: Sequence[asyncpg.Record]) -> list[Export]:
    found = await db.fetch(SQL["current_jobs"], [row["job_id"] for row in rows])
    live = {row["asked"]: row["id"] for row in found}
    jobs = {job.id: job for job in await reading.jobs(db, list(live.values()))} if live else {}
    return [_export(row, jobs.get(live.get(row["job_id"], UUID(int=0)))) for row in rows]


def _export(row: asyncpg.Record, job: Job | None) -> Export:
    known = {name: row[name] for name in Export.__slots__ if name != "job"}
    for name in ("request", "error"):
        known[name] = None if row[name] is None else orjson.loads(row[name])
    return Export(**known, job=job if job is not None and not job.ended else None)


async def delete(core: "Core", id: UUID, *, actor: str, reason: str | None = None) -> None:
    """Marked first, then its files go, then its row: whoever reads meanwhile is told. Asked again, it begins again if
    taking the files away was given up."""
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["export_for_update"], id)
        if row is None or (row["status"] == "deleting" and await tx.fetchval(SQL["removal_is_live"], str(id))):
            return
        live = await tx.fetchrow(SQL["current_jobs"], [row["job_id"]])
        if live is not None:
            raise Refused(
                "export_live",
                f"The export is being made by job {live['id']}.",
                hint="Cancel it first, or wait.",
                details={"job": str(live["id"])},
            )
        readers = [str(row["actor"]) for row in await tx.fetch(SQL["live_downloads"], id)]
        if readers:
            raise Refused(
                "export_downloading",
                f"The export is being downloaded by {', '.join(readers[:MOST_NAMED])}.",
                hint="Wait until that has ended.",
                details={"downloads": readers[:MOST_NAMED]},
            )
        await tx.execute(SQL["export_deleting"], id)
        await audit(tx, actor, "delete", f"export:{id}", reason)
        prefix = output_of_export(row["owner"], str(id))
        await core.enqueue(tx, [removing.removal([prefix], export_id=str(id))])


async def dropped(tx: Transaction, id: UUID) -> None:
    await tx.execute(SQL["drop_export"], id)


async def expire(core: "Core", at_once: int = 100) -> int:
    """Exports whose time is over; live ones wait for their end."""
    async with core.db.transaction() as tx:
        await tx.execute(SQL["forget_downloads"])
        rows = await tx.fetch(SQL["expired_exports"], at_once)
        removals = []
        for row in rows:
            await tx.execute(SQL["export_deleting"], row["id"])
            removals.append(
                removing.removal([output_of_export(row["owner"], str(row["id"]))], export_id=str(row["id"]))
            )
        await core.enqueue(tx, removals)
    return len(rows)
