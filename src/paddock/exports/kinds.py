"""The kinds of exports. Loaded by the control plane and by every runner of a worker, so nothing heavy is imported here:
the hooks run in the control plane, the handlers in a runner, and each imports what it needs."""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from paddock.config import Config
from paddock.exports import handler
from paddock.exports.model import AskPayload, ExportPayload, MetadataPayload, about
from paddock.jobs.kinds import Backoff, Kind

if TYPE_CHECKING:
    from paddock.db.pool import Transaction
    from paddock.jobs.kinds import Made
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


async def _group_ended(tx: "Transaction", group: "Group") -> "Made":
    from paddock.db.pool import DEADLOCKS
    from paddock.exports import snapshots
    from paddock.pass_metrics import pass_metrics

    try:
        return await snapshots.group_ended(tx, group)
    except DEADLOCKS:
        raise
    except Exception:
        pass_metrics().finalization_failures.inc()
        raise


def _rescued(reason: str) -> None:
    """A claim is stale when the session that made it died."""
    from paddock.pass_metrics import pass_metrics

    if reason in ("session_died", "worker_lost"):
        pass_metrics().stale_claims_detected.inc()
    if reason == "session_died":
        pass_metrics().stale_claims_reset.inc()


SNAPSHOT_EVENTS = {
    "snapshot.ready": "A snapshot is ready: all of its files are there",
    "snapshot.failed": "A snapshot failed: one of its exports did",
    "snapshot.cancelled": "The making of a snapshot was cancelled",
    "snapshot.deleted": "A snapshot was deleted; its files go",
}


EXPORT = Kind(
    name="export",
    payload=ExportPayload,
    handler=handler.run_export,
    cleanup=handler.clean_export,
    # An engine that stays away is given up by time (`patience`); the number is well beyond that, and ends a cleanup.
    retry=Backoff(first=timedelta(seconds=60), cap=timedelta(minutes=5), limit=5, cluster_limit=100),
    grace=timedelta(seconds=280),  # a direct export is one turn: let it end
    # Not `effects_outside_fence`: a control plane that is away for a lease would end every export of its workers. The one
    # such effect is a destination's manifest, which asks the fence itself (`delivering`).
    lock_key=lambda payload: None if payload.destination is None else f"destination:{payload.destination.key}",
    uses=_uses,
    about=about,
    part_of=lambda payload: "snapshot" if payload.get("snapshot_id") is not None else None,
    public_saved=("draft", "query_id", "mode", "direct_because", "poll_count", "next_poll_at"),
    on_end=_ended,
    on_group_end=_group_ended,
    on_rescued=_rescued,
    end_events=SNAPSHOT_EVENTS,
)

DESCRIBE = Kind(
    name="describe",
    payload=AskPayload,
    handler=handler.run_ask,
    about=about,
    retry=Backoff(first=timedelta(seconds=1), cap=timedelta(seconds=5), limit=2),
    turn_timeout=timedelta(minutes=2),
    total_timeout=timedelta(minutes=5),
)

METADATA = Kind(
    name="metadata",
    payload=MetadataPayload,
    handler=handler.run_metadata,
    about="engine",
    retry=Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=5),
    total_timeout=timedelta(hours=6),
    lock_key=lambda payload: f"metadata:{payload.engine}",
)

KINDS = (EXPORT, DESCRIBE, METADATA)


def worker_kinds(_config: Config) -> Sequence[Kind]:
    return KINDS


def internal_kinds(config: Config) -> Sequence[Kind]:
    from paddock.exports import removing, scheduled_snapshot
    from paddock.exports.scheduled import SCHEDULED

    check_settings(config)
    return (SCHEDULED, scheduled_snapshot.SCHEDULED, *removing.KINDS)


def check_settings(config: Config) -> None:
    """A table of an engine or a destination that is wrong stops a process at its start, with a sentence that names it, and
    not the first request that needs it."""
    from paddock.engines.registry import settings_from
    from paddock.exports import destinations

    settings_from(config)
    destinations.check_tables(config)
