"""The instance that a job starts, grows or stops."""

from uuid import UUID

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.instances import model
from paddock.instances.around import KINDS
from paddock.instances.service import may_read
from paddock.jobs.model import Job
from paddock.web.purposes import Purpose


async def made_for(plane: ControlPlane, caller: Caller, job: Job) -> list[Purpose]:
    if job.kind not in KINDS:
        return []
    found = await model.get(plane.core.db, UUID(job.payload["instance_id"]))
    if found is None or not may_read(caller, found):
        return []
    return [Purpose("Instance", f"/instances/{found.id}", found.id, found.name)]
