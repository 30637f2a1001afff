"""Every end of a job, and all that belongs to it: the kind's hook, the group, events, word to those who wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import UUID

import asyncpg
import structlog

from paddock.db.pool import DEADLOCKS, Transaction, column, statements
from paddock.jobs import events, grouping, reading, scanning
from paddock.jobs.errors import Refused
from paddock.jobs.fencing import SQL
from paddock.jobs.model import MAX_ERROR_MESSAGE
from paddock.jobs.values import clean_text

if TYPE_CHECKING:
    from paddock.jobs.core import Core

SCHEDULES = statements("paddock.jobs.sql", "schedules.sql")
log = structlog.get_logger()


# Made for every finish, and freezing a dataclass doubles what making it costs.
@dataclass(slots=True)
class Ending:
    """One job to be ended: by its attempt, or (attempt_id None) whoever holds it."""

    id: UUID
    attempt_id: UUID | None
    status: str
    result: str | None = None
    code: str | None = None
    message: str | None = None
    error: str | None = None


class ItemFailed(Exception):
    """One item cannot be finished as asked; `outcome` is what becomes of it instead."""

    def __init__(self, outcome: str, code: str, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.error = {"code": code, "message": clean_text(message, MAX_ERROR_MESSAGE)}


async def end(
    core: "Core",
    tx: Transaction,
    endings: Sequence[Ending],
    *,
    anyone: bool = False,
    still_running: bool = False,
    own: bool = False,
    event: str | None = None,
    actor: str | None = None,
    reason: str | None = None,
) -> list[asyncpg.Record]:
    """Ends jobs and does all that belongs to an end. Returns the rows of those that were ended.

    `event` is the row of the timeline, with its `reason` or the code of each one's error."""
    ordered = sorted(endings, key=lambda ending: ending.id.int)
    rows = await tx.fetch(
        SQL["end_jobs"],
        [ending.id for ending in ordered],
        column(ending.attempt_id for ending in ordered),
        column(None if ending.status == "completed" else ending.status for ending in ordered),
        column(ending.result for ending in ordered),
        column(ending.code for ending in ordered),
        column(ending.message for ending in ordered),
        column(ending.error for ending in ordered),
        anyone,
        still_running,
        event,
        actor,
        reason,
        own,
    )
    await _run_end_hooks(core, tx, [row for row in rows if row["has_end_hook"]])
    if any(row["group_id"] is not None for row in rows):
        await grouping.subtract(core, tx, rows)
    runs = [row for row in rows if row["end_status"] == "failed" and row["schedule"] and not row["cleanup_of"]]
    if runs:
        await tx.execute(
            SCHEDULES["due_after_failures"], [run["schedule"] for run in runs], [run["id"] for run in runs]
        )
    if rows and (rows[0]["heard"] or events.ends_are_heard(core)):
        await events.emit_ends(core, tx, rows)
    core.tell_ends(tx, rows)
    return rows


async def _run_end_hooks(core: "Core", tx: Transaction, rows: Sequence[asyncpg.Record]) -> None:
    """A hook may refuse *done* by raising: outputs become real in this transaction or not at all. Any other end stands."""
    for row in rows:
        kind = core.kinds.get(row["kind"])
        if kind is None and row["end_status"] == "completed":
            # Its package is broken here, or this replica is of another version: without its hook what the job made
            # would never become real.
            message = f"The end of kind '{row['kind']}' cannot be carried out here at the moment."
            raise ItemFailed("transient", "unknown_kind", message)
        hook = None if kind is None else kind.on_end if row["cleanup_of"] is None else kind.on_cleanup_end
        if hook is None:
            continue
        job = reading.job_of((await tx.fetch(scanning.jobs_by_id(), [row["id"]]))[0])
        try:
            async with tx.savepoint():
                await core.make(tx, await hook(tx, job), owner=job.owner)
        except DEADLOCKS:
            raise
        except Refused as refused:
            # Said on purpose, and no other try would be taken.
            if row["end_status"] == "completed":
                raise ItemFailed("permanent", "end_hook_failed", refused.message) from None
        except Exception as problem:
            log.exception("end_hook_failed", job=str(row["id"]), kind=row["kind"])
            if row["end_status"] == "completed":
                raise ItemFailed("transient", "end_hook_failed", f"{type(problem).__name__}: {problem}") from None
