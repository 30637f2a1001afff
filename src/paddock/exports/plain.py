"""Plain exports: a query or a table, and the files it became. One row for each, beside the jobs that make it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database, Transaction, statements
from paddock.exports import download_holds, removing
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


@dataclass(frozen=True, slots=True)
class Export:
    id: UUID
    # What its owner calls it, if anything.
    name: str | None
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
    job_id = await enqueueing.once(core, idempotency, lambda tx: insert(core, tx, new))
    [job] = await enqueueing.made(core, [job_id])
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
    await tx.execute(
        SQL["insert_export"],
        id,
        job_id,
        new.owner,
        payload.engine,
        new.role,
        request,
        new.ttl,
        new.request.get("name"),
    )
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


async def page(
    db: Database,
    owner: str | None,
    *,
    status: str | None = None,
    engine: str | None = None,
    text: str | None = None,
    name: str | None = None,
    before: UUID | None = None,
    limit: int = 100,
) -> list[Export]:
    """Newest first; of one owner, or everybody's. A long query is cut. `text` is looked for in names, queries and tables; it
    and the other filters look at the newest 20,000, and at no older ones."""
    common = (before or GREATEST_ID, limit, status, engine, text, name)
    if owner is None:
        rows = await db.fetch(SQL["exports_page"], *common)
    else:
        rows = await db.fetch(SQL["exports_page_of_owner"], *common, owner)
    return await _with_jobs(db, rows)


async def called(db: Database, owner: str | None, text: str, *, limit: int) -> list[Export]:
    """The newest whose name or table holds `text`, among the newest 2,000; of one owner, or everybody's. Without queries."""
    if owner is None:
        rows = await db.fetch(SQL["exports_called"], limit, text)
    else:
        rows = await db.fetch(SQL["exports_called_of_owner"], limit, text, owner)
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
        if row is not None:
            await _delete(core, tx, row, actor, reason)


async def expire(core: "Core", id: UUID) -> bool:
    """Whether its end was accepted: it is looked at again under the lock, and may have gone or been given more time."""
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["expired_export_for_update"], id)
        return row is not None and await _delete(core, tx, row, "paddock", "its ttl is over")


async def _delete(core: "Core", tx: Transaction, row: asyncpg.Record, actor: str, reason: str | None) -> bool:
    id: UUID = row["id"]
    if row["status"] == "deleting" and await tx.fetchval(SQL["removal_is_live"], str(id)):
        return False
    live = await tx.fetchrow(SQL["current_jobs"], [row["job_id"]])
    if live is not None:
        raise Refused(
            "export_live",
            f"The export is being made by job {live['id']}.",
            hint="Cancel it first, or wait.",
            details={"job": str(live["id"])},
        )
    await download_holds.check_none(tx, "export", id)
    await tx.execute(SQL["export_deleting"], id)
    await audit(tx, actor, "delete", f"export:{id}", reason)
    prefix = output_of_export(row["owner"], str(id))
    await core.enqueue(tx, [removing.removal([prefix], export_id=str(id))])
    return True


async def dropped(tx: Transaction, id: UUID) -> None:
    await tx.execute(SQL["drop_export"], id)
