"""`release`: a worker gives jobs back uncounted, or says of lost ones that their attempt has stopped."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddock.db.pool import Transaction
from paddock.jobs import wire
from paddock.jobs.durations import bounded_delay
from paddock.jobs.fencing import SQL, Key, columns, resolved, verdict_on, writer, writer_of
from paddock.jobs.model import Verdict
from paddock.jobs.values import clean_text

if TYPE_CHECKING:
    from paddock.jobs.core import Core


async def release(core: "Core", items: Sequence[wire.ReleaseItem]) -> list[wire.ItemVerdict]:
    """Gives jobs back, or says of lost ones that their attempt has stopped."""
    ordered = sorted(items, key=writer)

    async def write(tx: Transaction) -> set[Key]:
        rows = await tx.fetch(
            SQL["release_jobs"],
            [item.id for item in ordered],
            [item.attempt_id for item in ordered],
            [bounded_delay(item.delay_seconds) for item in ordered],
            [clean_text(item.reason, 200) for item in ordered],
        )
        released = {writer_of(row) for row in rows}
        stopped = [writer(item) for item in ordered if writer(item) not in released]
        ids, attempts = columns(stopped)
        freed = await tx.fetch(SQL["attempts_stopped"], attempts, ids) if stopped else []
        core.tell(tx, [*rows, *freed])
        return released

    accepted = await core.db.repeated(write)
    verdicts = await resolved(core, [(item, "release") for item in items if writer(item) not in accepted])
    return core.judged(
        "release", [verdicts.get((writer(item), "release")) or verdict_on(item, Verdict.ACCEPTED) for item in items]
    )
