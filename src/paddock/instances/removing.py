"""The end of an instance, as somebody asks for it: `stopping` is written first, and from there on some job takes it down.

A start at work is cancelled in the same transaction, and its cleanup inherits the lock; where there is none, the stop job is
made. So there is no moment at which an instance is stopping and nobody stops it.
"""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import asyncpg

from paddock.db.pool import Statement, Transaction
from paddock.instances import moving
from paddock.instances.model import SQL, Instance, get, subject_of
from paddock.jobs import ending
from paddock.jobs.acting import audit
from paddock.jobs.core import Core
from paddock.jobs.ending import Ending
from paddock.jobs.errors import LockHeld
from paddock.jobs.model import JobId

LOOK_EVERY = 0.1


@dataclass(frozen=True, slots=True)
class Removal:
    """`left` is the instance as long as it is not gone, with the job that takes it down."""

    what: Literal["gone", "stopping"]
    left: Instance | None = None


async def stop(core: Core, id: UUID, *, actor: str, reason: str | None, only_if: Statement | None = None) -> bool:
    """False: it is gone already, or `only_if` no longer holds, which locks the row. Asked again, nothing changes."""

    async def write(tx: Transaction) -> bool:
        job = await tx.fetchrow(SQL["lock_job_of_instance"], id)
        if only_if is not None and await tx.fetchval(only_if, id) is None:
            return False
        row = await tx.fetchrow(SQL["mark_stopping"], id, actor, reason)
        if row is not None:
            await audit(tx, actor, "instance_stopping", subject_of(id), reason, {"name": row["name"]})
            await _cancel_algorithm(core, tx, id, actor)
        else:
            row = await tx.fetchrow(SQL["lock_instance"], id)
        if row is None:
            return False
        if job is not None and (job["kind"] not in (moving.START, moving.GROW) or job["cleanup_of"] is not None):
            return True  # a stop is at work, or a cleanup, which looks at the row when it ends
        if job is not None and await _cancel(core, tx, job["id"], actor, reason):
            return True
        try:
            await core.enqueue(tx, [moving.stop_job(row)])
        except LockHeld:
            # A job came between our look and our lock of the row: once more, and it is seen.
            raise asyncpg.SerializationError("another job has the instance's lock now") from None
        return True

    return await core.db.repeated(write)


async def _cancel(core: Core, tx: Transaction, job: UUID, actor: str, reason: str | None) -> bool:
    """Whether a cleanup has the lock now; a start that was never claimed leaves none."""
    rows = await _end(core, tx, job, actor, reason or "the instance was deleted")
    return any(row["cleanup_id"] is not None for row in rows)


async def _cancel_algorithm(core: Core, tx: Transaction, id: UUID, actor: str) -> None:
    job = await tx.fetchval(SQL["lock_algorithm_job"], id)
    if job is not None:
        await _end(core, tx, job, actor, "the instance was deleted")


async def _end(core: Core, tx: Transaction, job: UUID, actor: str, reason: str) -> list[asyncpg.Record]:
    message = f"Cancelled by {actor}: {reason[:500]}"
    cancelled = Ending(JobId(job), None, "cancelled", code="cancelled", message=message)
    return await ending.end(
        core, tx, [cancelled], anyone=True, still_running=True, event="cancelled", actor=actor, reason=reason[:500]
    )


async def until_gone(core: Core, id: UUID, seconds: float) -> Removal:
    deadline = time.monotonic() + seconds
    while True:
        left = await get(core.db, id)
        if left is None:
            return Removal("gone")
        if time.monotonic() >= deadline or core.claims.closing.is_set():
            return Removal("stopping", left)
        await asyncio.sleep(LOOK_EVERY)
