"""The table that a job keeps in shape."""

from pydantic import ValidationError

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.jobs.model import Job
from paddock.maintenance import tables
from paddock.maintenance.access import may_have
from paddock.maintenance.model import MAINTENANCE_PREFIX, TableName
from paddock.maintenance.pages.tables import path_of
from paddock.web.purposes import Purpose


async def made_for(plane: ControlPlane, caller: Caller, job: Job) -> list[Purpose]:
    if not job.kind.startswith(MAINTENANCE_PREFIX):
        return []
    try:
        name = TableName.model_validate(job.payload.get("table"))
    except ValidationError:
        return []
    found = await tables.get(plane.core.db, name) if may_have(plane.config, caller, name) else None
    return [] if found is None else [Purpose("Table", path_of(found), str(name), str(name))]
