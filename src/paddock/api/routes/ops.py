"""Operating: the state of the whole, drain mode, global configuration."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from starlette.responses import Response

import paddock
from paddock.api import global_config
from paddock.api.access import OPERATORS
from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.guard import guarded_router
from paddock.api.pagination import answer
from paddock.api.plane import ControlPlane, ThePlane
from paddock.capability import each
from paddock.jobs import reading
from paddock.jobs.enqueueing import SQL

router = guarded_router("ops", OPERATORS)

STATE_EXAMPLE = {
    "version": "0.1.0",
    "drain": {"enabled": False, "reason": None},
    "counts": {"probe": {"pending": 3, "claimed": 1}},
    "sampled_at": "2026-11-15T09:30:00Z",
    "workers": {"live": 2, "quiet": 0, "running": 1, "slots": 20},
    "paused_kinds": [],
    "unoffered_kinds": [],
    "snapshots": {"ready": 12, "creating": 1},
    "exports": {"completed": 40},
    "dumps": {"completed": 3},
    "background_jobs": {
        "lifecycle": {
            "healthy": True,
            "enabled": True,
            "last_success_at": "2026-11-15T09:29:00Z",
            "failures_in_a_row": 0,
        }
    },
}
CONFIG_EXAMPLE = {
    "announcement": {
        "value": "Maintenance on Sunday at noon.",
        "default": "",
        "description": "A sentence for everybody, shown on each page of the dashboard.",
        "updated_at": "2026-11-15T09:00:00Z",
        "updated_by": "grace",
    }
}


class Drain(BaseModel):
    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"enabled": True, "reason": "database upgrade"}]}
    )

    enabled: bool = Field(strict=True)
    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


class ConfigBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"settings": {"announcement": "Maintenance on Sunday."}, "reason": "upgrade"}]},
    )

    settings: dict[str, Any] = Field(max_length=100, description="Those to change; null is back to the default.")
    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


@router.get("/api/ops/state", summary="Counts, workers, drain mode", responses=documented(STATE_EXAMPLE))
async def get_state(plane: ThePlane, caller: Asking) -> Response:
    return answer(await state(plane))


async def state(plane: ControlPlane) -> dict[str, Any]:
    db = plane.core.db
    drain = await db.fetchrow(SQL["drain_state"])
    assert drain is not None
    counts, workers, kinds = await reading.counts(db), await reading.workers(db), await reading.kinds(db)
    live = [worker for worker in workers if worker.live]
    told: dict[str, Any] = {}
    for _, tell in each("state"):
        told |= await tell(db)
    return {
        "version": paddock.__version__,
        "drain": {"enabled": drain["drained"], "reason": drain["drain_reason"]},
        "counts": counts.by_kind,
        "sampled_at": counts.sampled_at,
        "workers": {
            "live": len(live),
            "quiet": sum(worker.quiet for worker in live),
            "running": sum(worker.running for worker in live),
            "slots": sum(worker.slots for worker in live),
        },
        "paused_kinds": [kind.name for kind in kinds if kind.paused],
        "unoffered_kinds": [kind.name for kind in kinds if kind.unoffered],
        **told,
    }


@router.post("/api/ops/drain", summary="Refuse new work, or take it again", responses=documented(STATE_EXAMPLE))
async def set_drain(body: Drain, plane: ThePlane, caller: Asking) -> Response:
    await plane.core.drain(body.enabled, actor=caller.actor, reason=body.reason)
    return answer(await state(plane))


@router.get("/api/ops/config", summary="Settings of the whole installation", responses=documented(CONFIG_EXAMPLE))
async def get_config(plane: ThePlane, caller: Asking) -> Response:
    return answer(await global_config.read(plane.core.db))


@router.put(
    "/api/ops/config", summary="Change settings of the whole installation", responses=documented(CONFIG_EXAMPLE)
)
async def put_config(body: ConfigBody, plane: ThePlane, caller: Asking) -> Response:
    await global_config.write(plane.core.db, body.settings, actor=caller.actor, reason=body.reason)
    return answer(await global_config.read(plane.core.db))
