"""Snapshots: one export job for each node and edge of a mapping's version, and what their ends make of them.

The snapshot, its parts, its group and all jobs are made in one transaction. Each part is written in the transaction
that ends its job, the snapshot in the one that ends its group: it is ready exactly when the current job of every part
completed. Retrying opens the group again, whoever asks for it, until the snapshot is ready or goes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Transaction, statements
from paddock.exports import download_holds, mapping, removing, snapshot_uses
from paddock.exports.mapping import Definition, Entity
from paddock.exports.model import ExportPayload, output_of_part
from paddock.exports.snapshot_states import SQL, Snapshot, SnapshotPart, get, part_of, prefix_of
from paddock.jobs import enqueueing, grouping
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.model import Group, GroupId, Job, JobId, JsonObject, NewEvent, NewJob
from paddock.pass_metrics import pass_metrics

if TYPE_CHECKING:
    from paddock.jobs.core import Core

MAPPINGS = statements("paddock.exports.sql", "mappings.sql")
KIND = "export"
FAILED = "Export failed"
CANCELLED = {"code": "cancelled", "message": "Cancelled."}
MOST_NAMED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSnapshot:
    owner: str
    mapping_id: UUID
    # None: the newest.
    mapping_version: int | None = None
    engine: str
    role: str | None
    # Empty: the mapping's name and version.
    name: str = ""
    description: str = ""
    ttl: timedelta | None = None
    # What every job is told besides its definition: catalog, schema_name, mode, max_duration_seconds.
    request: JsonObject = field(default_factory=dict)
    traceparent: str | None = None


async def create(core: "Core", new: NewSnapshot, *, actor: str, idempotency: IdempotencyKey | None = None) -> Snapshot:
    return await _existing(
        core, await enqueueing.once(core, idempotency, lambda tx: insert(core, tx, new, actor=actor))
    )


async def insert(core: "Core", tx: Transaction, new: NewSnapshot, *, actor: str) -> UUID:
    """The same inside the caller's transaction."""
    version = await tx.fetchrow(MAPPINGS["mapping_version_for_share"], new.mapping_id, new.mapping_version)
    if version is None:
        raise Refused("not_found", "There is no such version of the mapping.", status=404)
    id: UUID = await tx.fetchval(MAPPINGS["new_id"])
    group = await grouping.create(tx, KIND, new.owner, {"snapshot_id": str(id)})
    entities = mapping.entities(Definition.model_validate_json(version["definition"]))
    made = _SnapshotJobs(
        id, new.owner, new.mapping_id, version["version"], new.engine, new.role, new.request, new.traceparent
    )
    jobs = await enqueueing.enqueue(core, tx, [made.job(entity, group) for entity in entities], public=True)
    await grouping.seal(core, tx, group)
    await tx.execute(
        SQL["insert_snapshot"],
        id,
        new.owner,
        new.name or f"{version['name'][:200]} v{version['version']}",
        new.description,
        new.mapping_id,
        version["version"],
        new.engine,
        new.role,
        orjson.dumps(new.request).decode(),
        group,
        new.ttl,
    )
    await tx.execute(
        SQL["insert_parts"],
        id,
        [entity.section for entity in entities],
        list(range(len(entities))),
        [entity.name for entity in entities],
        jobs,
    )
    await audit(tx, actor, "snapshot_created", f"snapshot:{id}", details={"mapping": str(new.mapping_id)})
    return id


@dataclass(frozen=True, slots=True)
class _SnapshotJobs:
    """What the jobs of a snapshot have in common, now and at every retry."""

    id: UUID
    owner: str
    mapping_id: UUID
    version: int
    engine: str
    role: str | None
    request: JsonObject
    traceparent: str | None = None

    def job(self, entity: Entity, group: GroupId, retry_of: JobId | None = None) -> NewJob:
        output = output_of_part(
            self.owner, str(self.mapping_id), self.version, str(self.id), entity.section, entity.name
        )
        payload = ExportPayload.model_validate(
            {
                **self.request,
                **entity.model_dump(),
                "engine": self.engine,
                "output": output,
                "snapshot_id": str(self.id),
            }
        )
        return NewJob(
            KIND,
            payload.model_dump(mode="json", exclude_defaults=True),
            owner=self.owner,
            role=self.role,
            # Of one submission they are due together, and claimed in their order: nodes before edges.
            group_id=group,
            retry_of=retry_of,
            traceparent=self.traceparent,
        )


async def part_ended(tx: Transaction, job: Job) -> None:
    """In the transaction that ends the job. Raising refuses a *done*: its files are then nobody's."""
    completed = job.status == "completed"
    changed = await tx.fetchval(
        SQL["end_part"],
        UUID(job.payload["snapshot_id"]),
        job.payload["section"],
        job.payload["name"],
        job.id,
        job.status,
        *(_written(job.result) if completed else [None] * 7),
        None if completed else orjson.dumps(_error_of(job)).decode(),
        job.started_at,
        job.group_id,
    )
    if changed is None and completed:
        raise Refused("snapshot_deleted", "The snapshot was deleted while it was made.")


def _written(result: JsonObject) -> list[Any]:
    columns = [result[name] for name in ("rows", "bytes", "files", "manifest", "sha256")]
    return [*columns, result.get("query_id"), datetime.fromisoformat(result["started_at"])]


def _error_of(job: Job) -> JsonObject:
    hint = next((error["hint"] for error in reversed(job.errors) if error.get("hint")), None)
    error = {"code": job.error_code, "message": job.error_message or FAILED, "job_id": str(job.id)}
    return error if hint is None else {**error, "hint": hint}


async def group_ended(tx: Transaction, group: Group) -> Sequence[NewEvent]:
    """Whenever its last job ends, so once more after each retry. The group's row is locked: no part changes meanwhile."""
    if "snapshot_id" not in group.data:
        return ()
    id = UUID(group.data["snapshot_id"])
    parts = [part_of(row) for row in await tx.fetch(SQL["parts"], id)]
    status = _status(group, parts)
    ready = status == "ready"
    settled = await tx.fetchval(
        SQL["settle_snapshot"],
        id,
        status,
        None if ready else orjson.dumps(_error(status, parts)).decode(),
        _counts(parts, "nodes") if ready else None,
        _counts(parts, "edges") if ready else None,
        sum(part.bytes or 0 for part in parts) if ready else None,
        group.id,
    )
    if settled:
        metrics = pass_metrics()
        tx.count(metrics.snapshots_finalized)
        if group.ended_at is not None:
            now = await tx.fetchval(SQL["now"])
            tx.observe(metrics.finalization_lag, (now - group.ended_at).total_seconds())
    if settled and ready:
        # What is ready stays ready: a single job of it cannot be run again.
        await tx.execute(SQL["close_group"], group.id)
    return [_event(status, id)] if settled else ()


def _event(what: str, id: UUID) -> NewEvent:
    return NewEvent(f"snapshot.{what}", f"snapshot:{id}", {"snapshot_id": str(id)})


def _status(group: Group, parts: Sequence[SnapshotPart]) -> str:
    if all(part.status == "completed" for part in parts):
        return "ready"
    return "cancelled" if group.cancelled or any(part.status == "cancelled" for part in parts) else "failed"


def _error(status: str, parts: Sequence[SnapshotPart]) -> JsonObject:
    """Of the first job in order that ended so."""
    first = next((part for part in parts if part.status == status and part.error is not None), None)
    if first is None or first.error is None:
        return {"code": "export_failed", "message": FAILED} if status == "failed" else CANCELLED
    return {**first.error, "section": first.section, "name": first.name}


def _counts(parts: Sequence[SnapshotPart], section: str) -> str:
    return orjson.dumps({part.name: part.rows for part in parts if part.section == section}).decode()


async def retry(core: "Core", snapshot: Snapshot, *, actor: str, idempotency: IdempotencyKey | None = None) -> Snapshot:
    """New jobs in the place of those that failed or were cancelled, under the role they had; what completed stays."""

    async def write(tx: Transaction) -> None:
        if await enqueueing.earlier(tx, idempotency) is None:
            await _retry(core, tx, snapshot.id, actor)
            await enqueueing.remember(tx, idempotency, [JobId(snapshot.id)])

    await core.db.repeated(write)
    return await _existing(core, snapshot.id)


async def _retry(core: "Core", tx: Transaction, id: UUID, actor: str) -> None:
    row, group = await _locked(tx, id)
    if row["status"] == "deleting":
        raise _deleting()
    failed = await _not_completed(tx, row)
    if not failed:
        raise Refused("nothing_to_retry", "Nothing of this snapshot has failed or was cancelled.")
    definition = await tx.fetchval(MAPPINGS["definition"], row["mapping_id"], row["mapping_version"])
    entities = {
        (entity.section, entity.name): entity for entity in mapping.entities(Definition.model_validate_json(definition))
    }
    request = orjson.loads(row["request"])
    made = _SnapshotJobs(
        id, row["owner"], row["mapping_id"], row["mapping_version"], row["engine"], row["role"], request
    )
    if group is None:
        # A group goes a while after its end, a snapshot may live longer.
        opened = await grouping.create(tx, KIND, row["owner"], {"snapshot_id": str(id)})
        new = [made.job(entities[part.section, part.name], opened) for part in failed]
        jobs = await enqueueing.enqueue(core, tx, new, public=True)
        await grouping.seal(core, tx, opened)
    else:
        opened = GroupId(row["group_id"])
        outcomes = {
            job["id"]: job["status"] for job in await tx.fetch(SQL["lock_ended_jobs"], [p.job_id for p in failed])
        }
        for part in failed:
            await grouping.reopen(tx, opened, outcomes.get(part.job_id, part.status))
        new = [made.job(entities[part.section, part.name], opened, retry_of=part.job_id) for part in failed]
        jobs = await enqueueing.enqueue(core, tx, new, public=True)
    await tx.execute(SQL["retry_parts"], id, [p.section for p in failed], [p.name for p in failed], jobs)
    await tx.execute(SQL["reopen_snapshot"], id, opened)
    await audit(tx, actor, "snapshot_retried", f"snapshot:{id}", details={"jobs": len(jobs)})


async def _not_completed(tx: Transaction, row: asyncpg.Record) -> list[SnapshotPart]:
    """Those whose last job did not complete and that no job is at work for: a single one may have been retried."""
    live = {(job["section"], job["name"]) for job in await tx.fetch(SQL["live_parts"], row["group_id"])}
    parts = [part_of(part) for part in await tx.fetch(SQL["parts"], row["id"])]
    return [part for part in parts if part.status != "completed" and (part.section, part.name) not in live]


async def cancel(core: "Core", snapshot: Snapshot, *, actor: str, reason: str | None = None) -> Snapshot:
    """All of its jobs that have not ended."""
    live = [JobId(job["id"]) for job in await core.db.fetch(SQL["live_parts"], snapshot.group_id)]
    verdicts = await core.cancel(live, actor=actor, reason=reason) if live else {}
    if "cancelled" not in verdicts.values():
        raise Refused("already_finished", "All jobs of the snapshot have ended already; nothing was cancelled.")
    async with core.db.transaction() as tx:
        await audit(tx, actor, "snapshot_cancelled", f"snapshot:{snapshot.id}", reason, {"jobs": len(live)})
    return await _existing(core, snapshot.id)


async def delete(core: "Core", id: UUID, *, actor: str, reason: str | None = None, scope: str | None = None) -> None:
    """Marked first, then its files go, then its row: whoever reads meanwhile is told. Asked again, it begins again if
    taking the files away was given up. `scope` is the owner whose uses of it a refusal may name, None: everybody's."""

    async def write(tx: Transaction) -> None:
        await _delete(core, tx, id, actor, reason, scope)

    await core.db.repeated(write)


async def _delete(
    core: "Core",
    tx: Transaction,
    id: UUID,
    actor: str,
    reason: str | None,
    scope: str | None = None,
    *,
    expired: bool = False,
) -> bool:
    row, _ = await _locked(tx, id)
    if expired and (row["status"] == "deleting" or not row["is_expired"]):
        return False
    live = [job["id"] for job in await tx.fetch(SQL["live_parts"], row["group_id"])]
    if live:
        raise Refused(
            "snapshot_busy",
            f"Jobs are at work for this snapshot: {', '.join(map(str, live[:5]))}{', …' if len(live) > 5 else ''}.",
            hint="Cancel it first, or wait until it has ended.",
            details={"jobs": [str(job) for job in live[:MOST_NAMED]]},
        )
    await snapshot_uses.check_unused(tx, id, scope)
    await download_holds.check_none(tx, "snapshot", id)
    if row["removal_job"] is not None and await tx.fetchval(SQL["job_is_live"], row["removal_job"]):
        return False
    await tx.execute(SQL["close_group"], row["group_id"])
    prefix = prefix_of(row["owner"], row["mapping_id"], row["mapping_version"], id)
    [removal] = await core.enqueue(tx, [removing.removal([prefix], snapshot_id=str(id))])
    await tx.execute(SQL["snapshot_deleting"], id, removal)
    if row["status"] != "deleting":
        await core.make(tx, [_event("deleted", id)], owner=row["owner"])
    await audit(tx, actor, "snapshot_deleted", f"snapshot:{id}", reason, {"name": row["name"]})
    return True


async def dropped(tx: Transaction, id: UUID) -> None:
    """Its files are gone; now it is too."""
    await tx.execute(SQL["drop_snapshot"], id)


async def expire(core: "Core", id: UUID) -> bool:
    """Whether its end was accepted: it is looked at again under the lock, and may have gone or been given more time."""

    async def write(tx: Transaction) -> bool:
        return await _delete(core, tx, id, "paddock", "its ttl is over", expired=True)

    return await core.db.repeated(write)


async def _locked(tx: Transaction, id: UUID) -> tuple[Any, asyncpg.Record | None]:
    """The snapshot and its group, if that is still there, in the order in which an end locks them."""
    group_id = await tx.fetchval(SQL["group_of_snapshot"], id)
    group = await tx.fetchrow(SQL["lock_group"], group_id)
    row = await tx.fetchrow(SQL["lock_snapshot"], id)
    if row is None:
        raise Refused("not_found", "There is no such snapshot.", status=404)
    if row["group_id"] != group_id:
        # Somebody retried it in between, and its group was gone.
        raise asyncpg.SerializationError("the snapshot has another group now")
    return row, group


def _deleting() -> Refused:
    return Refused("snapshot_deleting", "The snapshot is being deleted.")


async def _existing(core: "Core", id: UUID) -> Snapshot:
    found = await get(core.db, id)
    if found is None:
        raise Refused("not_found", "There is no such snapshot.", status=404)
    return found
