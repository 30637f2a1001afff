"""The kinds of exports. Loaded by the control plane and by every runner of a worker, so nothing heavy is imported here:
the hooks run in the control plane, the handlers in a runner, and each imports what it needs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from paddock.exports import handler
from paddock.exports.model import AskPayload, ExportPayload
from paddock.jobs.kinds import Backoff, Kind

if TYPE_CHECKING:
    from paddock.db.pool import Transaction
    from paddock.jobs.model import Group, Job


async def _ended(tx: "Transaction", job: "Job") -> None:
    """The only commit: what the job wrote is named here, in the transaction that ends it, or never."""
    from paddock.exports import plain, snapshots

    if job.cleanup_of is not None:
        return
    if job.payload.get("export_id") is not None:
        await plain.ended(tx, job)
    elif job.payload.get("snapshot_id") is not None:
        await snapshots.part_ended(tx, job)


def _uses(payload: ExportPayload) -> Sequence[tuple[str, str]]:
    """What a token must be allowed to use before it may have this run again. The role stands beside the payload."""
    found = [("engine", payload.engine)]
    if payload.destination is not None:
        found.append(("destination", payload.destination.name))
    return found


async def _group_ended(tx: "Transaction", group: "Group") -> None:
    from paddock.exports import snapshots

    await snapshots.group_ended(tx, group)


EXPORT = Kind(
    name="export",
    payload=ExportPayload,
    handler=handler.run_export,
    cleanup=handler.clean_export,
    retry=Backoff(first=timedelta(seconds=60), cap=timedelta(minutes=5), limit=5),
    grace=timedelta(seconds=280),  # a direct export is one turn: let it end
    # Not `effects_outside_fence`: a control plane that is away for a lease would end every export of its workers. The one
    # such effect is a destination's manifest, which asks the fence itself (`delivering`).
    lock_key=lambda payload: None if payload.destination is None else f"destination:{payload.destination.key}",
    uses=_uses,
    part_of=lambda payload: "snapshot" if payload.get("snapshot_id") is not None else None,
    public_saved=("draft", "query_id", "mode", "direct_because", "poll_count", "next_poll_at"),
    on_end=_ended,
    on_group_end=_group_ended,
)

DESCRIBE = Kind(
    name="describe",
    payload=AskPayload,
    handler=handler.run_ask,
    retry=Backoff(first=timedelta(seconds=1), cap=timedelta(seconds=5), limit=2),
    turn_timeout=timedelta(minutes=2),
    total_timeout=timedelta(minutes=5),
)

KINDS = (EXPORT, DESCRIBE)
