"""How an instance comes to be: its limits, its snapshot or the use of one, its row and its event, in one transaction; and how
one that failed or runs is started again."""

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from paddock.db.pool import Transaction
from paddock.exports import snapshot_uses, snapshots
from paddock.exports.snapshot_states import Snapshot
from paddock.exports.snapshots import NewSnapshot
from paddock.instances import limits, moving, sizing
from paddock.instances.model import SQL, subject_of
from paddock.jobs import enqueueing
from paddock.jobs.acting import audit
from paddock.jobs.core import Core
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import LockHeld, Refused
from paddock.jobs.model import JobId

WHILE_WAITING_GB = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewInstance:
    owner: str
    name: str
    description: str
    wrapper_type: str
    mapping_id: UUID
    mapping_version: int
    # To be made for it, or there already.
    snapshot: NewSnapshot | UUID
    cpu_cores: int
    # None: from the snapshot's size.
    memory_gb: int | None
    ttl: timedelta
    inactivity_timeout: timedelta


async def create(
    core: Core, new: NewInstance, *, actor: str, room: int | None, idempotency: IdempotencyKey | None = None
) -> UUID:
    """Its id. `room` is how much memory the runtime has for all instances."""
    return await enqueueing.once(core, idempotency, lambda tx: _insert(core, tx, new, actor, room))


async def _insert(core: Core, tx: Transaction, new: NewInstance, actor: str, room: int | None) -> UUID:
    await limits.lock(tx)
    if isinstance(new.snapshot, UUID):
        ready = await _ready_snapshot(tx, new.snapshot)
        memory = new.memory_gb or sizing.memory_gb(ready)
        await limits.check(tx, new.owner, memory, room=room)
        snapshot_id = ready.id
    else:
        ready, memory = None, new.memory_gb or WHILE_WAITING_GB
        await limits.check(tx, new.owner, memory, room=room)
        snapshot_id = await snapshots.insert(core, tx, new.snapshot, actor=actor)
    id: UUID = await tx.fetchval(SQL["new_id"])
    await tx.execute(
        SQL["insert_instance"],
        id,
        new.owner,
        new.name,
        new.description,
        new.wrapper_type,
        new.mapping_id,
        new.mapping_version,
        snapshot_id,
        ready is None,
        new.cpu_cores,
        memory,
        new.memory_gb is not None,
        new.ttl,
        new.inactivity_timeout,
    )
    await snapshot_uses.take(tx, snapshot_id, subject_of(id), owner=new.owner, name=new.name)
    details = {"name": new.name, "mapping_id": str(new.mapping_id), "snapshot_id": str(snapshot_id)}
    await audit(tx, actor, "instance_created", subject_of(id), details=details)
    await core.make(tx, [moving.event("created", id, snapshot_id=str(snapshot_id))], owner=new.owner)
    if ready is not None:
        await _start(core, tx, id, memory, ["waiting_for_snapshot"], public=True)
    return id


async def _ready_snapshot(tx: Transaction, id: UUID, *, made_of_it: bool = False) -> Snapshot:
    """`made_of_it`: by an instance that is there, and not by whoever asks."""
    snapshot = await snapshot_uses.locked(tx, id)
    if snapshot is None and made_of_it:
        raise Refused(
            "snapshot_not_ready",
            f"The snapshot {id} that the instance is made of is gone.",
            hint="Make another instance of the mapping.",
            details={"snapshot_id": str(id), "status": "gone"},
        )
    if snapshot is None:
        raise Refused("not_found", "There is no such snapshot.", status=404)
    if snapshot.status != "ready":
        raise Refused(
            "snapshot_not_ready",
            f"The snapshot '{snapshot.name}' ({snapshot.id}) is {snapshot.status}; an instance is made of a ready one.",
            hint="Wait until it is ready, retry it, or make the instance from the mapping.",
            details={"snapshot_id": str(snapshot.id), "status": snapshot.status},
        )
    return snapshot


async def _start(
    core: Core, tx: Transaction, id: UUID, memory_gb: int, from_: list[str], *, public: bool, reopened: bool = False
) -> None:
    row = await tx.fetchrow(SQL["lock_instance"], id)
    assert row is not None, "the caller made or locked it in this transaction"
    job = await moving.to_starting(tx, row, memory_gb=memory_gb, from_=from_, reopened=reopened)
    if job is not None:
        await enqueueing.enqueue(core, tx, [job], public=public)


async def reopen(
    core: Core, id: UUID, *, actor: str, room: int | None, idempotency: IdempotencyKey | None = None
) -> None:
    """A new generation of one that failed or runs. What it had loaded is used again where the runtime still has it."""

    async def write(tx: Transaction) -> None:
        if await enqueueing.earlier(tx, idempotency) is not None:
            return
        await limits.lock(tx)
        row = await tx.fetchrow(SQL["lock_instance"], id)
        if row is None:
            raise Refused("not_found", "There is no such instance.", status=404)
        if row["status"] not in ("failed", "running"):
            raise Refused(
                "not_reopenable",
                f"The instance is {row['status']}; one that failed or runs can be reopened.",
                details={"status": row["status"]},
            )
        ready = await _ready_snapshot(tx, row["snapshot_id"] or row["pending_snapshot_id"], made_of_it=True)
        memory = row["memory_gb"] if row["memory_asked"] or row["snapshot_id"] else sizing.memory_gb(ready)
        await limits.check(tx, row["owner"], memory, room=room, without=id)
        try:
            await _start(core, tx, id, memory, ["failed", "running"], public=True, reopened=True)
        except LockHeld:
            raise Refused(
                "instance_busy",
                "What the instance ran before is still being taken away.",
                hint="Try again in a moment.",
            ) from None
        await audit(tx, actor, "instance_reopened", subject_of(id))
        await core.make(tx, [moving.event("reopened", id)], owner=row["owner"])
        await enqueueing.remember(tx, idempotency, [JobId(id)])

    await core.db.repeated(write)
