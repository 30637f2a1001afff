"""Sources by their name, and runs by their id."""

from paddock.api.finding import Found, Sought, configured
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.ingest import runs
from paddock.ingest.model import Run
from paddock.ingest.service import visible_sources
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from paddock.jobs.model import JobId


async def find(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    sources = visible_sources(plane, caller)
    named = list(configured("source", sources, "/ingest/{}", sought))
    if sought.ids is None:
        return named
    seen = await runs.page(plane.core.db, list(sources), before=sought.before, limit=sought.limit)
    return named + [
        Found(
            "ingest run",
            str(run.id),
            run.source,
            f"/ingest/runs/{run.id}",
            run.status,
            await _job_of(plane, run) if sought.exactly else None,
        )
        for run in seen
        if sought.has(run.id)
    ]


async def _job_of(plane: ControlPlane, run: Run) -> JobId | None:
    """The newest that failed, else the newest."""
    for statuses in (("failed",), None):
        asked = Filter(group=run.group_id, status=statuses, include_cleanups=False)
        if newest := (await reading.page(plane.core.db, asked, limit=1)).jobs:
            return newest[0].id
    return None
