"""The dump whose file a job makes or removes."""

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.dumps import dumps
from paddock.dumps.databases import may_dump
from paddock.jobs.model import Job
from paddock.web.purposes import Purpose


async def made_for(plane: ControlPlane, caller: Caller, job: Job) -> list[Purpose]:
    dump_id = job.payload.get("dump_id")
    dump = None if not dump_id else await dumps.get(plane.core.db, str(dump_id))
    if dump is None or dump.status == "deleting" or not may_dump(plane.config, caller, dump.database):
        return []
    return [Purpose("Dump", f"/dumps/{dump_id}", str(dump_id), str(dump_id))]
