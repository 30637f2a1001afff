"""One kind for each database that may be dumped: who reaches a database offers its kind, and nobody else is asked.

Loaded by the control plane and by every runner of a worker, so nothing heavy is imported here.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from paddock.config import Config
from paddock.dumps import handler
from paddock.dumps.database_settings import DatabaseSettings, PostgresDatabase, databases_from
from paddock.dumps.model import DumpPayload
from paddock.jobs.kinds import Backoff, Kind

if TYPE_CHECKING:
    from paddock.db.pool import Transaction
    from paddock.jobs.model import Job, NewEvent, NewJob

PREFIX = "dump:"
END_EVENTS = {
    "dump.failed": "A dump failed",
    "dump.completed": "A dump completed",
    "dump.cancelled": "A dump was cancelled",
}
STALL = timedelta(minutes=10)
STALLED = "Export job timed out after 10 minutes"
# Without limit: what ends a dump that gets nowhere is the stall.
RETRY = Backoff(
    first=timedelta(seconds=60),
    cap=timedelta(seconds=60),
    limit=1_000_000,
    cluster_limit=1_000_000,
    loss_limit=1_000_000,
)


def dump_kinds(config: Config) -> list[Kind]:
    return [_kind(name, settings) for name, settings in databases_from(config).items()]


def internal_kinds(_config: Config) -> Sequence[Kind]:
    from paddock.dumps import callbacks, removing, scheduled

    return (scheduled.SCHEDULED, callbacks.CALLBACK, *removing.KINDS)


def out_of_reach(config: Config) -> set[str]:
    """Dumps of databases that another worker may have, and this one has not."""
    import structlog  # of the worker alone: its runners, which load this too, would start later

    missing = [name for name, database in databases_from(config).items() if not reachable(database)]
    for name in missing:
        structlog.get_logger().warning("database_unreachable", database=name, doing="this worker offers no dumps of it")
    return {f"{PREFIX}{name}" for name in missing}


def reachable(settings: DatabaseSettings) -> bool:
    """Whether this machine can open it, as far as that can be told without asking a server."""
    return isinstance(settings, PostgresDatabase) or os.access(settings.path, os.R_OK)


async def _ended(tx: "Transaction", job: "Job") -> "Sequence[NewJob | NewEvent] | None":
    """The only commit: the file is named here, in the transaction that ends the job, or never."""
    from paddock.dumps import dumps

    made = job.cleanup_of is None and not job.payload.get("check")
    return await dumps.ended(tx, job) if made else None


def _kind(name: str, settings: DatabaseSettings) -> Kind:
    live = isinstance(settings, PostgresDatabase)
    return Kind(
        name=f"{PREFIX}{name}",
        payload=DumpPayload,
        handler=handler.run_dump,
        cleanup=handler.clean_dump,
        retry=RETRY,
        stall_timeout=STALL,
        stall_fails=STALLED,
        # A snapshot that is given up is work for nothing: let it end.
        grace=timedelta(seconds=280 if live else 5),
        uses=lambda payload: [("database", payload.database)],
        about="database",
        public_saved=("point_in_time", "restarts"),
        on_end=_ended,
        end_events=END_EVENTS,
    )
