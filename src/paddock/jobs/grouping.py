"""Groups: a counter row for jobs that belong together.

Each end subtracts in its own transaction, groups in id order; whoever brings a sealed group to 0 runs the hook of
its kind under a savepoint. If the hook raises, the end stands, `hook_due` stays set and upkeep repeats it.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import orjson
import structlog

from paddock.db.pool import DEADLOCKS, Database, Transaction, statements
from paddock.jobs.errors import Refused
from paddock.jobs.filtering import GREATEST_ID
from paddock.jobs.model import Group, GroupId, JsonObject

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "groups.sql")
log = structlog.get_logger()
LATEST = datetime(9999, 1, 1, tzinfo=UTC)
MOST_COUNTED = 10_000


async def create(tx: Transaction, kind: str, owner: str, data: JsonObject | None = None) -> GroupId:
    """A group is open for more jobs until it is sealed, and cannot end before."""
    return GroupId(await tx.fetchval(SQL["insert_group"], kind, owner, orjson.dumps(data or {}).decode()))


async def grow(tx: Transaction, id: GroupId, jobs: int) -> None:
    if await tx.fetchval(SQL["grow_group"], id, jobs) is None:
        raise Refused("group_finished", "The group has ended and takes no more jobs.")


async def seal(core: "Core", tx: Transaction, id: GroupId) -> None:
    row = await tx.fetchrow(SQL["seal_group"], id)
    if row is not None and row["hook_due"]:
        await _run_hook(core, tx, row)


async def subtract(core: "Core", tx: Transaction, ended: Iterable[asyncpg.Record]) -> None:
    """`ended` are rows of end_jobs. Cleanups count in no group."""
    counts: dict[GroupId, list[int]] = {}
    for row in ended:
        if row["group_id"] is None or row["cleanup_of"] is not None:
            continue
        count = counts.setdefault(row["group_id"], [0, 0, 0])
        count[0] += 1
        count[1] += row["end_status"] == "failed"
        count[2] += row["end_status"] == "cancelled"
    for id in sorted(counts):
        group = await tx.fetchrow(SQL["shrink_group"], id, *counts[id])
        if group is not None and group["hook_due"]:
            await _run_hook(core, tx, group)


async def reopen(tx: Transaction, id: GroupId, retried_status: str) -> None:
    """The retried job's outcome no longer counts; the new job is open in its place."""
    failed, cancelled = int(retried_status == "failed"), int(retried_status == "cancelled")
    if await tx.fetchval(SQL["reopen_group"], id, failed, cancelled) is None:
        raise Refused("group_finished", "The job's group is finished for good; start the whole thing again.")


async def repeat_hooks(core: "Core", kind: str | None = None) -> int:
    """Runs the hooks that failed when their group ended. Returns how many succeeded now."""
    succeeded = 0
    after = UUID(int=0)
    while True:
        # Page after page: a hundred hooks that always fail must not stand before those that would succeed.
        ran = await core.db.repeated(partial(_repeat_page, core, after, kind))
        if not ran:
            return succeeded
        succeeded += sum(ran.values())
        after = max(ran)


async def _repeat_page(core: "Core", after: UUID, kind: str | None, tx: Transaction) -> dict[UUID, bool]:
    rows = await tx.fetch(SQL["groups_with_hook_due"], after, kind)
    return {row["id"]: await _run_hook(core, tx, row) for row in rows}


async def _run_hook(core: "Core", tx: Transaction, row: asyncpg.Record) -> bool:
    kind = core.kinds.get(row["kind"])
    if kind is None:
        # Its package is broken here, or this replica is of another version: the hook stays due for one that knows the kind.
        return False
    try:
        async with tx.savepoint():
            if kind.on_group_end is not None:
                await core.make(tx, await kind.on_group_end(tx, group_of(row)), owner=row["owner"])
            await tx.execute(SQL["group_hook_done"], row["id"])
    except DEADLOCKS:
        raise
    except Exception:
        log.exception("group_hook_failed", group=str(row["id"]), kind=row["kind"])
        return False
    return True


async def get(db: Database, id: UUID) -> Group | None:
    row = await db.fetchrow(SQL["group"], id)
    return None if row is None else group_of(row)


async def open_page(db: Database, owner: str | None, *, before: UUID | None = None, limit: int = 100) -> list[Group]:
    """Those not ended, newest first; of one owner, or everybody's."""
    common = (before or GREATEST_ID, limit)
    if owner is None:
        rows = await db.fetch(SQL["open_groups"], *common)
    else:
        rows = await db.fetch(SQL["open_groups_of_owner"], *common, owner)
    return [group_of(row) for row in rows]


async def ended_page(
    db: Database, owner: str | None, *, before: tuple[datetime, UUID] | None = None, limit: int = 100
) -> list[Group]:
    """Ended ones, the last to end first. `before` is the end and the id of the last one of the page before."""
    common = (*(before or (LATEST, GREATEST_ID)), limit)
    if owner is None:
        rows = await db.fetch(SQL["ended_groups"], *common)
    else:
        rows = await db.fetch(SQL["ended_groups_of_owner"], *common, owner)
    return [group_of(row) for row in rows]


async def live_counts(db: Database, id: GroupId) -> dict[str, int]:
    """Its live jobs by status, as far as MOST_COUNTED of them tell."""
    return {row["status"]: row["n"] for row in await db.fetch(SQL["live_of_group"], id, MOST_COUNTED)}


def group_of(row: asyncpg.Record) -> Group:
    return Group(
        id=row["id"],
        kind=row["kind"],
        owner=row["owner"],
        open=row["open"],
        failed=row["failed"],
        cancelled=row["cancelled"],
        total=row["total"],
        sealed=row["sealed"],
        data=orjson.loads(row["data"]),
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        final=row["final"],
        hook_due=row["hook_due"],
    )
