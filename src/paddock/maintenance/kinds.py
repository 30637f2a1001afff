"""Two kinds for each catalog: `maintenance:X` works on its tables, `tables:X` looks at them. Who has a catalog configured offers
its kinds, and nobody else is asked.

Loaded by the control plane and by every runner of a worker, so nothing heavy is imported here.
"""

import importlib.util
from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from paddock.config import Config
from paddock.jobs.kinds import Backoff, Kind
from paddock.maintenance import handlers
from paddock.maintenance.catalog_settings import catalogs_from
from paddock.maintenance.model import MAINTENANCE_PREFIX, TABLES_PREFIX, LookPayload, MaintenancePayload, lock_key
from paddock.maintenance.settings import MaintenanceSettings

if TYPE_CHECKING:
    from paddock.db.pool import Transaction
    from paddock.jobs.model import Job, NewEvent, NewJob

END_EVENTS = {
    "maintenance.completed": "The maintenance of a table completed",
    "maintenance.failed": "The maintenance of a table failed",
    "maintenance.alarm": "Somebody must look at a table",
}
RETRY = Backoff(first=timedelta(seconds=10), cap=timedelta(minutes=5), limit=5, cluster_limit=20, loss_limit=5)


def worker_kinds(config: Config) -> list[Kind]:
    fail_on_shutdown = config.of(MaintenanceSettings).fail_on_sigterm
    return [kind for name in catalogs_from(config) for kind in (_maintenance(name, fail_on_shutdown), _tables(name))]


def out_of_reach(config: Config) -> set[str]:
    """A worker without PyIceberg offers none of them."""
    import structlog  # of the worker alone: its runners, which load this too, would start later

    if importlib.util.find_spec("pyiceberg") is not None:
        return set()
    names = {f"{prefix}{name}" for name in catalogs_from(config) for prefix in (MAINTENANCE_PREFIX, TABLES_PREFIX)}
    if names:
        structlog.get_logger().warning(
            "pyiceberg_missing", doing="this worker maintains no tables", hint="pip install 'paddock[iceberg]'"
        )
    return names


def internal_kinds(_config: Config) -> Sequence[Kind]:
    from paddock.maintenance import passes, scheduled

    return (*passes.KINDS, scheduled.SCHEDULED)


def _maintenance(name: str, fail_on_shutdown: bool) -> Kind:
    return Kind(
        name=f"{MAINTENANCE_PREFIX}{name}",
        payload=MaintenancePayload,
        handler=handlers.maintain,
        about=lambda payload: f"{payload.table}: {', '.join(payload.actions)}",
        cleanup=handlers.clean_up,
        retry=RETRY,
        turn_timeout=timedelta(hours=6),
        concurrency=2,
        effects_outside_fence=True,
        fail_on_shutdown=fail_on_shutdown,
        lock_key=lock_key,
        public_saved=("outcomes",),
        on_end=_maintained,
        on_cleanup_end=_cleaned_up,
        end_events=END_EVENTS,
    )


def _tables(name: str) -> Kind:
    return Kind(
        name=f"{TABLES_PREFIX}{name}",
        payload=LookPayload,
        handler=handlers.look,
        about=lambda payload: str(payload.table or payload.catalog),
        turn_timeout=timedelta(hours=1),
        housekeeping=True,
        follow_ups=frozenset({f"{TABLES_PREFIX}{name}"}),
        on_end=_looked,
    )


async def _maintained(tx: "Transaction", job: "Job") -> "Sequence[NewJob | NewEvent] | None":
    from paddock.maintenance import tables

    return await tables.maintained(tx, job)


async def _cleaned_up(tx: "Transaction", job: "Job") -> "Sequence[NewJob | NewEvent] | None":
    from paddock.maintenance import tables

    return await tables.cleaned_up(tx, job)


async def _looked(tx: "Transaction", job: "Job") -> "Sequence[NewJob | NewEvent] | None":
    from paddock.maintenance import tables

    return await tables.looked(tx, job)
