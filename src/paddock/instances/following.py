"""`instance_follow`: an instance that waits for its snapshot is moved on when that ends.

The kind hears the ends of snapshots. `follow` is the whole rule for one instance: it locks and reads instance and snapshot
again, so it may be called by anybody at any time, as often as they like.
"""

from uuid import UUID

import asyncpg
import structlog
from pydantic import BaseModel, ConfigDict

from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.exports import snapshot_uses
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import limits, moving, sizing
from paddock.instances.ends import error_of
from paddock.instances.model import SQL
from paddock.instances.running_on import runtime_of
from paddock.jobs.core import Core
from paddock.jobs.errors import LockHeld, Refused
from paddock.jobs.model import Event, NewJob
from paddock.jobs.outcomes import Outcome, done
from paddock.jobs.turn import Turn

FOLLOW = "instance_follow"
AT_ONCE = 100
WAITING = ["waiting_for_snapshot"]
log = structlog.get_logger()


class FollowPayload(BaseModel):
    model_config = ConfigDict(extra="forbid")

    snapshot_id: str


async def hear(tx: Transaction, event: Event) -> NewJob | None:
    """A delivery, if somebody waits for this snapshot."""
    id = str(event.data["snapshot_id"])
    waiting = await tx.fetch(SQL["waiting_for"], UUID(id), 1)
    return NewJob(FOLLOW, {"snapshot_id": id}, owner=event.owner) if waiting else None


async def run_follow(turn: Turn[FollowPayload], core: Core, config: Config) -> Outcome:
    moved = {}
    for row in await core.db.fetch(SQL["waiting_for"], UUID(turn.payload.snapshot_id), AT_ONCE):
        moved[str(row["id"])] = await follow(core, config, row["id"])
    return done({"instances": moved})


async def follow(core: Core, config: Config, id: UUID) -> str:
    """What became of it: `starting`, `failed`, or `waiting` where there is nothing to do."""
    runtime = runtime_of(config)
    room = None if runtime is None else await runtime.memory_bytes()

    async def write(tx: Transaction) -> str:
        await limits.lock(tx)
        row = await tx.fetchrow(SQL["lock_instance"], id)
        if row is None or row["status"] != "waiting_for_snapshot":
            return "moved"
        if row["pending_snapshot_id"] is None:
            log.warning("instance_missing_pending_snapshot_id", instance_id=str(id))
            return "waiting"
        snapshot = await snapshot_uses.locked(tx, row["pending_snapshot_id"])
        if snapshot is not None and snapshot.live:
            return "waiting"
        if snapshot is not None and snapshot.status == "ready":
            return await _start(core, tx, row, snapshot, room)
        error = _why_not(snapshot)
        await core.make(tx, await moving.to_failed(tx, id, None, error, from_=WAITING), owner=row["owner"])
        return "failed"

    return await core.db.repeated(write)


async def _start(core: Core, tx: Transaction, row: asyncpg.Record, snapshot: Snapshot, room: int | None) -> str:
    memory_gb = row["memory_gb"] if row["memory_asked"] else sizing.memory_gb(snapshot)
    try:
        await limits.check(tx, row["owner"], memory_gb, room=room, without=row["id"])
    except Refused as refused:
        error = error_of("no_room", message=refused.message)
        await core.make(tx, await moving.to_failed(tx, row["id"], None, error, from_=WAITING), owner=row["owner"])
        return "failed"
    try:
        async with tx.savepoint():
            job = await moving.to_starting(tx, row, memory_gb=memory_gb, from_=WAITING)
            if job is not None:
                await core.enqueue(tx, [job])
    except LockHeld:
        return "waiting"  # somebody deletes it
    return "starting"


def _why_not(snapshot: Snapshot | None) -> dict[str, object]:
    if snapshot is None or snapshot.status == "deleting":
        return error_of("snapshot_deleted")
    if snapshot.status == "cancelled":
        return error_of("snapshot_cancelled")
    return error_of("snapshot_failed", error=str((snapshot.error or {}).get("message") or "Export failed"))
