"""Tables by their name, with or without that of their catalog."""

from uuid import UUID

from paddock.api.finding import Found, Sought
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.jobs.model import JobId
from paddock.maintenance import tables
from paddock.maintenance.access import catalogs_of
from paddock.maintenance.pages.tables import path_of
from paddock.maintenance.service import list_tables
from paddock.maintenance.tables import LakeTable


async def find(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    catalog, _, rest = sought.text.partition(".")
    mine = {name.lower(): name for name in catalogs_of(plane.config, caller)}
    known = mine.get(catalog.lower()) if rest else None
    seen = await list_tables(plane, caller, {"catalog": known, "q": rest if known else sought.text}, limit=sought.limit)
    return [
        Found(
            "table",
            str(one.table),
            str(one.table),
            path_of(one),
            one.health,
            await _job_of(plane, one) if sought.exactly else None,
        )
        for one in seen
        if not sought.exactly or any(map(sought.fits, (str(one.table), f"{one.database}.{one.name}")))
    ]


async def _job_of(plane: ControlPlane, table: LakeTable) -> JobId | None:
    """The one that maintains it, else the last that did."""
    last = [] if table.live_id else await tables.history(plane.core.db, table.table, limit=1)
    id = table.live_id or next((str(entry["job_id"]) for entry in last), None)
    return None if id is None else JobId(UUID(id))
