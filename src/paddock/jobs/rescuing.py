"""The rescuer: gives back what dead sessions hold and keeps time-outs that a worker cannot keep.

Every replica runs it once a second; each statement is guarded, so any number of them at once do each thing once.
Leases do not run while nobody could renew them, and a time-out is not kept against a worker that could not say it had
ended: after a gap in which no replica served, nothing expires for two beats. When the database's clock was ahead and
came back, the times that it wrote meanwhile are pulled back.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import asyncpg
import orjson
import structlog

from paddock.db.pool import Transaction, statements
from paddock.jobs import ending, finishing, schedules, wire
from paddock.jobs.ending import Ending
from paddock.jobs.model import Verdict

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SQL = statements("paddock.jobs.sql", "sessions.sql")
FENCE = statements("paddock.jobs.sql", "fencing.sql")
log = structlog.get_logger()
BATCH = 500
# How much longer than the worker's supervisor the rescuer waits.
HEAD_START = timedelta(seconds=30)

OVERDUE = {
    "turn_timeout": "The turn ran longer than its kind allows, and its worker did not stop it.",
    "stalled": "The job saved no progress for longer than its kind allows, and its worker did not stop it.",
    "timed_out": "The job took longer in all than its kind allows.",
}


@dataclass(frozen=True, slots=True)
class Rescued:
    given_back: int = 0
    failed: int = 0
    cleanups: int = 0


async def rescue(core: "Core") -> Rescued:
    if not await _has_served(core):
        return Rescued()
    async with core.db.transaction() as tx:
        back = await tx.fetch(SQL["rescue_jobs"], BATCH)
        core.tell(tx, back)
        freed = await tx.fetch(SQL["cleanups_of_the_dead"])
        core.tell(tx, freed)
    failed = await _fail_lost(core)
    core.count_rescued("session_died", (row["kind"] for row in back))
    core.count_rescued("worker_lost", failed)
    return Rescued(len(back), len(failed), len(freed))


async def _has_served(core: "Core") -> bool:
    """For two beats without a gap: whoever is alive has been heard."""
    has_served = await core.db.fetchval(SQL["stamp_service"], core.settings.beat, 2 * core.settings.beat)
    if has_served is None:
        await _pull_back(core)
    return bool(has_served)


async def _pull_back(core: "Core") -> None:
    """The database's clock was ahead and came back. What it wrote meanwhile lies in the future: leases that would not end,
    jobs and schedules that would not be due, until the clock has come there again."""

    async def write(tx: Transaction) -> timedelta | None:
        ahead: timedelta | None = await tx.fetchval(SQL["clock_ahead"])
        if ahead is not None:
            # Jobs first: claims lock in this order too.
            await tx.execute(SQL["pull_back_jobs"], ahead)
            await tx.execute(SQL["pull_back_sessions"])
            await schedules.pull_back(tx)
            await tx.execute(SQL["pull_back_service"])
        return ahead

    ahead = await core.db.repeated(write)
    if ahead is not None:
        log.warning("clock_came_back", ahead_seconds=ahead.total_seconds())
        core.look_again()


async def keep_timeouts(core: "Core") -> int:
    """The slower tick: time-outs of attempts whose worker should have kept them, and of jobs nobody holds."""
    if not await _has_served(core):
        return 0
    overdue = await core.db.fetch(SQL["overdue_attempts"], HEAD_START)
    orphans = {row["session_id"]: row["claimed_by"] for row in overdue if row["reason"] == "session_gone"}
    if orphans:
        await core.db.execute(SQL["bury_sessions"], list(orphans), list(orphans.values()))
    late = [row for row in overdue if row["reason"] in ("turn_timeout", "stalled")]
    verdicts = await finishing.finish(core, [_overdue(core, row) for row in late], by_worker=False)
    ended = [row["kind"] for row, verdict in zip(late, verdicts, strict=True) if verdict.verdict == Verdict.ACCEPTED]
    over = [row for row in overdue if row["reason"] == "timed_out"]
    over_waiting = await core.db.fetch(SQL["overdue_waiting"])
    ended += await _time_out(core, [_timed_out(row, row["attempt_id"]) for row in over])
    ended += await _time_out(core, [_timed_out(row, None) for row in over_waiting], anyone=True)
    core.count_rescued("timeout", ended)
    return len(ended)


async def _time_out(core: "Core", endings: Sequence[Ending], *, anyone: bool = False) -> list[str]:
    """The kinds of those it ended: others may have, since they were looked up."""

    async def write(tx: Transaction) -> list[str]:
        rows = await ending.end(core, tx, endings, anyone=anyone, still_running=True, event="timed_out")
        return [row["kind"] for row in rows]

    return await core.db.repeated(write) if endings else []


async def _fail_lost(core: "Core") -> list[str]:
    """The kinds of those it failed."""
    lost = await core.db.fetch(SQL["lost_for_good"], BATCH)
    if not lost:
        return []
    endings = [_failed(row, "worker_lost", _lost_message(row), row["attempt_id"]) for row in lost]

    async def write(tx: Transaction) -> list[str]:
        rows = await ending.end(core, tx, endings, event="worker_lost", reason="session_died")
        return [row["kind"] for row in rows]

    return await core.db.repeated(write)


def _lost_message(row: asyncpg.Record) -> str:
    if row["lost_count"] == 0:
        return f"Worker '{row['claimed_by']}' died while it ran this job, and its kind must not be repeated."
    return (
        f"Worker '{row['claimed_by']}' died while it ran this job, after {row['lost_count']} earlier losses; "
        "it may be what kills its workers (memory is the usual reason)."
    )


def _timed_out(row: asyncpg.Record, attempt: object) -> Ending:
    return _failed(row, "timed_out", OVERDUE["timed_out"], attempt)


def _failed(row: asyncpg.Record, code: str, message: str, attempt: object) -> Ending:
    error = orjson.dumps({"code": code, "message": message}).decode()
    return Ending(row["id"], attempt, "failed", code=code, message=message, error=error)  # type: ignore[arg-type]


def _overdue(core: "Core", row: asyncpg.Record) -> wire.FinishItem:
    kind = core.kinds.get(row["kind"])
    last_word = kind.stall_fails if kind is not None and row["reason"] == "stalled" else None
    return wire.FinishItem(
        id=row["id"],
        attempt_id=row["attempt_id"],
        outcome="transient" if last_word is None else "permanent",
        error=wire.Error(code=row["reason"], message=last_word or OVERDUE[row["reason"]]),
    )


__all__: Sequence[str] = ("Rescued", "keep_timeouts", "rescue")
