"""What a caller may do with instances, whoever asks: a route, a page or a command only translates.

Owners, operators and admins may do everything. Whoever an owner shares with reads and queries, and changes nothing. For
anybody else there is no such instance.
"""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import orjson

from paddock.api.errors import ApiError, invalid_field, not_found
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.db.pool import Transaction
from paddock.exports import snapshot_uses
from paddock.exports.mapping_service import visible_mapping
from paddock.exports.snapshot_service import SnapshotBody, prepare_needed_snapshot, visible_snapshot
from paddock.exports.snapshots import NewSnapshot
from paddock.instances import creating, model, moving, removing
from paddock.instances.bodies import MOST_AT_ONCE, BulkBody, ChangeBody, InstanceBody
from paddock.instances.creating import NewInstance
from paddock.instances.lifetimes import Lifetimes, asked_ttl, check_longest, lifetimes, positive
from paddock.instances.loadable import check_loadable, checked_wrapper
from paddock.instances.model import SQL, Instance, subject_of
from paddock.instances.removing import Removal
from paddock.instances.running_on import needed_runtime, runtime_of
from paddock.jobs.acting import audit
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import InfrastructureError

DELETE_SECONDS = 45.0
LOOK_EVERY = 0.2
TEN_AT_A_TIME = 10


async def prepare(plane: ControlPlane, caller: Caller, body: InstanceBody, role: str | None) -> NewInstance:
    """All that can be known is refused here, and not found by a failed instance later."""
    needed_runtime(plane.config)
    wrapper = checked_wrapper(body.wrapper_type)
    known = await lifetimes(plane.core.db)
    snapshot: NewSnapshot | UUID
    if body.snapshot_id is not None:
        found = await visible_snapshot(plane, caller, str(body.snapshot_id))
        mapping = await visible_mapping(plane, caller, str(found.mapping_id), found.mapping_version)
        snapshot = found.id
    else:
        mapping = await visible_mapping(plane, caller, str(body.mapping_id), body.mapping_version)
        snapshot = await _needed_snapshot(plane, caller, body, role, known)
    check_loadable(mapping.definition)
    return NewInstance(
        owner=caller.owner,
        name=(body.name or "").strip() or f"{mapping.name[:200]} v{mapping.version}",
        description=body.description,
        wrapper_type=wrapper,
        mapping_id=mapping.id,
        mapping_version=mapping.version,
        snapshot=snapshot,
        cpu_cores=body.cpu_cores,
        memory_gb=body.memory_gb,
        ttl=asked_ttl(body.ttl, known),
        inactivity_timeout=known.inactivity
        if body.inactivity_timeout is None
        else positive(body.inactivity_timeout, "inactivity_timeout"),
    )


async def _needed_snapshot(
    plane: ControlPlane, caller: Caller, body: InstanceBody, role: str | None, known: Lifetimes
) -> NewSnapshot:
    wanted = SnapshotBody.model_validate(
        {
            "mapping_id": body.mapping_id,
            "mapping_version": body.mapping_version,
            "engine": body.engine,
            "catalog": body.catalog,
            "schema": body.schema_name,
            "ttl": f"PT{int(known.snapshot_ttl.total_seconds())}S",
        }
    )
    return await prepare_needed_snapshot(plane, caller, wanted, role)


async def create(
    plane: ControlPlane,
    caller: Caller,
    body: InstanceBody,
    role: str | None = None,
    *,
    idempotency: IdempotencyKey | None = None,
) -> Instance:
    new = await prepare(plane, caller, body, role)
    room = await needed_runtime(plane.config).memory_bytes()
    id = await creating.create(plane.core, new, actor=caller.actor, room=room, idempotency=idempotency)
    found = await model.get(plane.core.db, id)
    if found is None:
        raise await gone_or_unknown(plane, caller, id)
    return found


async def visible(plane: ControlPlane, caller: Caller, text: str) -> Instance:
    """By its id, with dashes or without. One that is gone says so to those who could see it."""
    id = _id(text)
    found = await model.get(plane.core.db, id)
    if found is None:
        raise await gone_or_unknown(plane, caller, id)
    if not may_read(caller, found):
        raise not_found("instance")
    return found


async def changeable(plane: ControlPlane, caller: Caller, text: str) -> Instance:
    found = await visible(plane, caller, text)
    if not may_change(caller, found):
        raise ApiError(
            403,
            "not_yours",
            f"The instance '{found.name}' is shared with you: you may read and query it, and change nothing.",
            hint=f"Ask {found.owner}.",
        )
    return found


def may_read(caller: Caller, instance: Instance) -> bool:
    return may_change(caller, instance) or caller.owner in instance.shared_with


def may_change(caller: Caller, instance: Instance) -> bool:
    return caller.sees(instance.owner)


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        raise not_found("instance") from None


async def gone_or_unknown(plane: ControlPlane, caller: Caller, id: UUID) -> ApiError:
    told = await _gone(plane, caller, id)
    return not_found("instance") if told is None else told


async def _gone(plane: ControlPlane, caller: Caller, id: UUID) -> ApiError | None:
    row = await plane.core.db.fetchrow(SQL["gone"], id)
    if row is None:
        return None
    details = orjson.loads(row["details"])
    if not caller.sees(details["owner"]):
        return None
    why = f": {row['reason']}" if row["reason"] else ""
    at = row["at"].strftime("%Y-%m-%dT%H:%M:%SZ")
    return ApiError(
        404,
        "instance_gone",
        f"The instance '{details['name']}' was deleted at {at} by {row['actor']}{why}.",
        hint="Make another one of its mapping.",
        details={"deleted_at": at, "deleted_by": row["actor"], "reason": row["reason"], "name": details["name"]},
    )


async def wait_until_settled(plane: ControlPlane, caller: Caller, instance: Instance, seconds: float) -> Instance:
    """The instance once it runs or failed, or as it is when the time is over."""
    deadline = time.monotonic() + seconds
    while not instance.settled and time.monotonic() < deadline and not plane.closing.is_set():
        await asyncio.sleep(LOOK_EVERY)
        instance = await visible(plane, caller, str(instance.id))
    return instance


async def change(plane: ControlPlane, caller: Caller, text: str, body: ChangeBody) -> Instance:
    """TTL counts from the first running; what is left of it from now on is bounded."""
    found = await changeable(plane, caller, text)
    known = await lifetimes(plane.core.db)
    ttl = None if body.ttl is None else positive(body.ttl, "ttl")
    idle = None if body.inactivity_timeout is None else positive(body.inactivity_timeout, "inactivity_timeout")
    name = None if body.name is None else body.name.strip()

    async def write(tx: Transaction) -> None:
        if await tx.fetchrow(SQL["lock_instance"], found.id) is None:
            raise not_found("instance")
        row = await tx.fetchrow(SQL["change_instance"], found.id, name, body.description, ttl, idle)
        assert row is not None
        if ttl is not None:
            check_longest(ttl if row["expires_at"] is None else row["time_left"], known)
            if row["over"]:
                raise invalid_field("ttl", "That is over already; delete the instance instead.")
        if name is not None:
            await snapshot_uses.rename(tx, subject_of(found.id), name)
        await audit(
            tx, caller.actor, "instance_changed", subject_of(found.id), details=body.model_dump(exclude_none=True)
        )
        if ttl is not None:
            expires = None if row["expires_at"] is None else row["expires_at"].isoformat()
            event = moving.event("extended", found.id, ttl=body.ttl, expires_at=expires)
            await plane.core.make(tx, [event], owner=row["owner"])

    await plane.core.db.repeated(write)
    return await visible(plane, caller, str(found.id))


async def reopen(
    plane: ControlPlane, caller: Caller, text: str, *, idempotency: IdempotencyKey | None = None
) -> Instance:
    found = await changeable(plane, caller, text)
    room = await needed_runtime(plane.config).memory_bytes()
    await creating.reopen(plane.core, found.id, actor=caller.actor, room=room, idempotency=idempotency)
    return await visible(plane, caller, str(found.id))


async def delete(
    plane: ControlPlane, caller: Caller, text: str, *, reason: str | None = None, seconds: float = DELETE_SECONDS
) -> Removal:
    """Waits until it is really gone, so long at most. One that is gone already is fine; an unknown one is a 404."""
    id = _id(text)
    found = await model.get(plane.core.db, id)
    if found is None:
        if await _gone(plane, caller, id) is None:
            raise not_found("instance")
        return Removal("gone")
    await changeable(plane, caller, text)
    if not await removing.stop(plane.core, id, actor=caller.actor, reason=reason):
        return Removal("gone")
    return await removing.until_gone(plane.core, id, seconds)


@dataclass(frozen=True, slots=True)
class BulkVerdict:
    id: UUID
    verdict: str  # deleted, stopping, not_found, refused
    message: str | None = None


async def delete_many(plane: ControlPlane, caller: Caller, body: BulkBody) -> Sequence[BulkVerdict]:
    """Ten at a time; the waiting for all of them together is that for one."""
    ids = await _meant(plane, caller, body)
    if body.dry_run:
        return [BulkVerdict(id, "would_delete") for id in ids]
    deadline, gate = time.monotonic() + DELETE_SECONDS, asyncio.Semaphore(TEN_AT_A_TIME)

    async def one(id: UUID) -> BulkVerdict:
        async with gate:
            left = max(0.0, deadline - time.monotonic())
            try:
                removal = await delete(plane, caller, str(id), reason=body.reason, seconds=left)
            except ApiError as refused:
                return BulkVerdict(id, "not_found" if refused.status_code == 404 else "refused", refused.message)
            return BulkVerdict(id, "deleted" if removal.what == "gone" else "stopping")

    return await asyncio.gather(*(one(id) for id in ids))


async def _meant(plane: ControlPlane, caller: Caller, body: BulkBody) -> list[UUID]:
    if body.ids is not None:
        ids = list(dict.fromkeys(body.ids))
    else:
        assert body.filter is not None
        asked = body.filter
        older: timedelta | None = None if asked.older_than is None else positive(asked.older_than, "filter.older_than")
        rows = await plane.core.db.fetch(
            SQL["matching_ids"], caller.scope, asked.owner, asked.status, asked.name_prefix, older, MOST_AT_ONCE + 1
        )
        ids = [row["id"] for row in rows]
        if len(ids) > MOST_AT_ONCE:
            raise invalid_field("filter", f"More than {MOST_AT_ONCE} match; at most so many are deleted at once.")
    if body.expected_count is not None and len(ids) != body.expected_count:
        raise ApiError(
            409,
            "count_differs",
            f"{len(ids)} instances match, and {body.expected_count} were expected; none was deleted.",
            details={"count": len(ids)},
        )
    return ids


async def logs(plane: ControlPlane, caller: Caller, text: str) -> str:
    """The end of what it wrote, after its death too."""
    found = await visible(plane, caller, text)
    runtime = runtime_of(plane.config)
    if runtime is not None and found.pod_name is not None:
        with contextlib.suppress(
            InfrastructureError
        ):  # whoever runs it does not answer: what was kept is better than nothing
            live = await runtime.logs(found.pod_name)
            if live is not None:
                return live
    kept: str | None = await plane.core.db.fetchval(SQL["log"], found.id)
    return kept or ""


def statuses_of(words: Sequence[str] | None) -> Sequence[str] | None:
    if words is not None and not set(words) <= set(model.STATUSES):
        raise invalid_field("status", f"There are {', '.join(model.STATUSES)}.")
    return words


def verdict_json(verdict: BulkVerdict) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": verdict.id, "verdict": verdict.verdict}
    return shown if verdict.message is None else {**shown, "message": verdict.message}
