"""The export, or the snapshot and its mapping, whose files a job makes or removes."""

from uuid import UUID

from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.exports import plain, snapshot_states
from paddock.exports.kinds import EXPORT
from paddock.exports.removing import REMOVE
from paddock.jobs.model import Job
from paddock.web.purposes import Purpose


async def made_for(plane: ControlPlane, caller: Caller, job: Job) -> list[Purpose]:
    if job.kind not in (EXPORT.name, REMOVE.name):
        return []
    if export_id := job.payload.get("export_id"):
        export = await plain.get(plane.core.db, UUID(export_id))
        if export is None or not caller.sees(export.owner):
            return []
        return [Purpose("Export", f"/exports/{export.id}", export.id, export.name or "")]
    snapshot_id = job.payload.get("snapshot_id")
    snapshot = None if snapshot_id is None else await snapshot_states.get(plane.core.db, UUID(snapshot_id))
    if snapshot is None or not caller.sees(snapshot.owner):
        return []
    mapping = f"/mappings/{snapshot.mapping_id}?version={snapshot.mapping_version}"
    return [
        Purpose("Snapshot", f"/snapshots/{snapshot.id}", snapshot.id, snapshot.name),
        Purpose("Mapping", mapping, snapshot.mapping_id),
    ]
