"""The handlers, as the control plane may load them: what does the work, and PyIceberg with it, is imported when there is some.

They are plain functions, and so run in child processes of their own: cancel, time-outs and SIGTERM end them inside any driver.
"""

from paddock.jobs.outcomes import Outcome
from paddock.jobs.turn import Turn
from paddock.maintenance.model import LookPayload, MaintenancePayload
from paddock.maintenance.resources import MaintenanceResources


def maintain(turn: Turn[MaintenancePayload], resources: MaintenanceResources) -> Outcome:
    """Rewrites small files and manifests of an Iceberg table, expires its old snapshots and removes orphans, as asked."""
    from paddock.maintenance.iceberg import running

    catalog = turn.payload.table.catalog
    with resources.rewriter(catalog, str(turn.id)) as rewriter:
        return running.maintain(turn, resources.catalog(catalog), rewriter, resources.config.object_store)


def clean_up(turn: Turn[MaintenancePayload], resources: MaintenanceResources) -> Outcome:
    from paddock.maintenance.iceberg import running

    catalog = turn.payload.table.catalog
    with resources.rewriter(catalog, str(turn.id)) as rewriter:
        return running.clean_up(turn, resources.catalog(catalog), rewriter)


def look(turn: Turn[LookPayload], resources: MaintenanceResources) -> Outcome:
    """Looks at the tables of a catalog and notes how healthy each is."""
    from paddock.maintenance.iceberg import looking

    with resources.rewriter(turn.payload.catalog) as rewriter:
        return looking.look(turn, resources.catalog(turn.payload.catalog), resources.config.object_store, rewriter)
