"""What the passes over instances read, page by page, and what they do to one instance. Each looks again under the lock."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg

from paddock.config import Config
from paddock.db.pool import Database, Transaction
from paddock.instances import moving, removing, talking
from paddock.instances.model import SQL
from paddock.instances.running_on import runtime_of
from paddock.instances.talking import BadAnswer, Endpoint, Unreachable, saved_address
from paddock.jobs import durations
from paddock.jobs.core import Core
from paddock.jobs.errors import LockHeld

STATUS_SECONDS = 5.0
ACTOR = "paddock"
Place = Sequence[str] | None


@dataclass(frozen=True, slots=True)
class Watched:
    """An instance of a page. `expires_at` is when its time was over, or its idleness began to count."""

    id: UUID
    expires_at: datetime | None = None
    row: asyncpg.Record | None = None

    @property
    def place(self) -> list[str]:
        return [] if self.expires_at is None else [self.expires_at.isoformat(), str(self.id)]


@dataclass(frozen=True, slots=True)
class ById(Watched):
    @property
    def place(self) -> list[str]:
        return [str(self.id)]


async def expired(db: Database, after: Place, limit: int) -> list[Watched]:
    at, id = (None, None) if after is None else (datetime.fromisoformat(after[0]), UUID(after[1]))
    return [
        Watched(row["id"], row["expires_at"], row) for row in await db.fetch(SQL["expired_instances"], at, id, limit)
    ]


async def idle(db: Database, after: Place, limit: int) -> list[ById]:
    rows = await db.fetch(SQL["idle_instances"], _id(after), limit)
    return [ById(row["id"], row["expires_at"], row) for row in rows]


async def late_followers(db: Database, after: Place, limit: int) -> list[ById]:
    return [ById(row["id"]) for row in await db.fetch(SQL["following_late"], _id(after), limit)]


async def left_stopping(db: Database, after: Place, limit: int) -> list[ById]:
    return [ById(row["id"]) for row in await db.fetch(SQL["left_stopping"], _id(after) or UUID(int=0), limit)]


async def running(db: Database, after: Place, limit: int) -> list[ById]:
    return [ById(row["id"], row=row) for row in await db.fetch(SQL["running_instances"], _id(after), limit)]


def _id(after: Place) -> UUID | None:
    return None if after is None else UUID(after[-1])


async def expire(core: Core, item: Watched) -> bool:
    """Whether its end was accepted now."""
    assert item.row is not None
    reason = f"its TTL of {durations.written(item.row['ttl'])} was over"
    return await removing.stop(core, item.id, actor=ACTOR, reason=reason, only_if=SQL["is_expired"])


async def end_idle(core: Core, item: Watched) -> bool:
    assert item.row is not None
    reason = f"nobody used it for {durations.written(item.row['inactivity_timeout'])}"
    return await removing.stop(core, item.id, actor=ACTOR, reason=reason, only_if=SQL["is_idle"])


async def status_of(core: Core, config: Config, id: UUID) -> dict[str, Any] | None:
    """What the instance itself says; None: it does not answer, or what answers is no instance server."""
    runtime = runtime_of(config)
    row = await core.db.fetchrow(SQL["secret"], id)
    if runtime is None or row is None or row["status"] != "running":
        return None
    address = saved_address(row)
    if address is None:
        found = await runtime.get(row["pod_name"])
        if found is None or found.address is None or found.generation != row["generation"]:
            return None
        address = found.address
    try:
        answer = await talking.ask(
            Endpoint(address, row["generation"], row["token"]), "GET", "/status", seconds=STATUS_SECONDS
        )
    except (Unreachable, BadAnswer):
        return None
    return answer.data if answer.status == 200 else None


async def is_used(core: Core, id: UUID, status: dict[str, Any], since: timedelta) -> bool:
    """A query or an algorithm in flight is use, and so is one that ended since."""
    if status.get("in_flight") or status.get("queued") or await core.db.fetchrow(SQL["algorithm_at_work"], id):
        return True
    try:
        last = datetime.fromisoformat(str(status.get("last_activity_at")))
    except ValueError:
        return False
    now: datetime = await core.db.fetchval(SQL["now"])
    return last.tzinfo is not None and now - last < since


async def stop_again(core: Core, id: UUID) -> bool:
    """The stop of one that is stopping and that no job is at work for. Whether it was made now."""
    async with core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["lock_instance"], id)
        if row is None or row["status"] != "stopping":
            return False
        try:
            async with tx.savepoint():
                await core.enqueue(tx, [moving.stop_job(row)])
        except LockHeld:
            return False
        return True


async def tell(core: Core, tx: Transaction, id: UUID, owner: str, what: str, **data: object) -> None:
    """An event that the owner reads."""
    await core.make(tx, [moving.event(what, id, **data)], owner=owner)


async def running_pods(db: Database, limit: int) -> Sequence[asyncpg.Record]:
    """Those that run: id, name, owner, status, pod_name."""
    return await db.fetch(SQL["running_pods"], limit)


async def named_pods(db: Database, names: Sequence[str]) -> set[str]:
    """Which of these an instance names."""
    return {row["pod_name"] for row in await db.fetch(SQL["named_pods"], names)}


async def failures_by_category(db: Database) -> dict[str, int]:
    """What instances that are there failed of, where a cluster failed them."""
    return {row["category"]: row["n"] for row in await db.fetch(SQL["failures_by_category"])}


async def by_status(db: Database) -> dict[str, Any]:
    return {"instances": {row["status"]: row["n"] for row in await db.fetch(SQL["instance_counts"])}}
