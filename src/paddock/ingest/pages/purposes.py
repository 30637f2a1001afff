"""The run of a source whose step a job is."""

from uuid import UUID

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.ingest import runs
from paddock.ingest.around import started_by
from paddock.ingest.pipeline import REMOVE, STEP_KINDS
from paddock.ingest.service import may_see_source
from paddock.jobs.model import Job
from paddock.web.purposes import Purpose


async def made_for(plane: ControlPlane, caller: Caller, job: Job) -> list[Purpose]:
    id = _run_of(job)
    run = None if id is None else await runs.get(plane.core.db, id)
    if run is None or not may_see_source(plane, caller, run.source):
        return []
    return [Purpose("Ingest run", f"/ingest/runs/{run.id}", run.id, run.source)]


def _run_of(job: Job) -> UUID | None:
    if job.kind not in (*STEP_KINDS, REMOVE):
        return started_by(job)
    return UUID(job.payload["run_id"]) if job.payload.get("run_id") else None
