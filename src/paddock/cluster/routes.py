"""`/api/ops/cluster`: what of ours runs there, whose it is, and a look from inside."""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from paddock.api.access import ADMINS, OPERATORS
from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.guard import guarded_router
from paddock.api.job_json import EXAMPLE_ID, location
from paddock.api.pagination import answer
from paddock.api.plane import ThePlane
from paddock.cluster import overview, service

router = guarded_router("ops", OPERATORS)
admin_router = guarded_router("ops", ADMINS)

STANDING_EXAMPLE: dict[str, Any] = {
    "id": EXAMPLE_ID,
    "namespace": "graph-instances",
    "home": "paddock/paddock",
    "bound_at": "2026-11-18T09:30:00Z",
    "bound_by": "paddock",
    "mismatch": None,
    "hint": None,
}
EXAMPLE: dict[str, Any] = {
    "runtime": "kubernetes",
    "server": "https://10.0.0.1:443",
    "version": "v1.36.4",
    "problem": None,
    "installation": STANDING_EXAMPLE,
    "objects": [
        {
            "kind": "Pod",
            "name": f"ladybug-wrapper-{EXAMPLE_ID}-1",
            "namespace": "graph-instances",
            "instance_id": EXAMPLE_ID,
            "job_id": None,
            "owner": "ada",
            "node": "node-1",
            "created_at": "2026-11-18T09:30:00Z",
            "state": "running",
            "told": "",
            "diagnosis": None,
        }
    ],
    "without_row": [],
    "without_pod": [],
    "failures": {"no_room": 1},
}
PROBE_EXAMPLE = {"job_id": EXAMPLE_ID, "status": "pending"}


@router.get("/api/ops/cluster", summary="What of ours runs on the cluster", responses=documented(EXAMPLE))
async def show_cluster(plane: ThePlane, caller: Asking) -> Response:
    return answer(overview.as_json(await overview.look(plane.core.db, plane.config)))


@router.post(
    "/api/ops/cluster/probe",
    status_code=202,
    summary="Look at the cluster from inside",
    responses=documented(PROBE_EXAMPLE, status=202, description="Queued; the job is at `Location`."),
)
async def probe_cluster(plane: ThePlane, caller: Asking) -> Response:
    job = await service.probe(plane.core, plane.config, owner=caller.owner)
    return answer({"job_id": job.id, "status": job.status}, 202, {"Location": location(job.id)})


class AdoptBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "restored from the backup of Monday"}]}
    )

    # Its length is judged by the service, whose sentence says what a reason is for.
    reason: str = Field(default="", description="Why: kept in the audit log.")
    fresh: bool = Field(default=False, description="Under a new id: what runs there now is left alone.")


@admin_router.post(
    "/api/ops/cluster/adopt", summary="Bind the database to this cluster", responses=documented(STANDING_EXAMPLE)
)
async def adopt_cluster(body: AdoptBody, plane: ThePlane, caller: Asking) -> Response:
    standing = await service.adopt(plane.config, actor=caller.actor, reason=body.reason, fresh=body.fresh)
    return answer(overview.standing_json(standing))
