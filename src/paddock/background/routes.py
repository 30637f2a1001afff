"""The operators' part of the API: background jobs, and the jobs of exports as the older deployment showed them."""

from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from paddock.api.access import OPERATORS
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import EXAMPLE_ID, location
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, split
from paddock.api.plane import ThePlane
from paddock.background import records, service
from paddock.exports import operating

router = guarded_router("ops", OPERATORS)

STATUS_EXAMPLE: dict[str, Any] = {
    "job_name": "reconciliation",
    "interval_seconds": 300,
    "interval": "PT5M",
    "enabled": True,
    "status": "idle",
    "job_id": None,
    "next_run_at": "2026-11-18T09:35:00Z",
    "last_started_at": "2026-11-18T09:30:00Z",
    "last_ended_at": "2026-11-18T09:30:01Z",
    "last_success_at": "2026-11-18T09:30:01Z",
    "last_status": "success",
    "last_job_id": EXAMPLE_ID,
    "duration_seconds": 0.4,
    "error": None,
    "failures_in_a_row": 0,
    "failing_since": None,
    "healthy": True,
    "misfires": 0,
    "found": {"orphaned_pods_detected": 1, "orphaned_pods_cleaned": 1},
    "held_back": [],
    "last_trigger": None,
}
TRIGGER_EXAMPLE = {
    "job_name": "reconciliation",
    "status": "queued",
    "triggered_at": "2026-11-18T09:31:00Z",
    "triggered_by": "grace",
    "reason": "smoke test after the deploy",
    "job_id": EXAMPLE_ID,
}
EXPORT_JOB_EXAMPLE = {
    "id": EXAMPLE_ID,
    "snapshot_id": EXAMPLE_ID,
    "job_type": "node",
    "entity_name": "Airport",
    "status": "submitted",
    "gcs_path": "gs://exports/9f86d081884c7d65/…/nodes/Airport",
    "sql": "SELECT code, city FROM airports",
    "column_names": ["code", "city"],
    "starburst_catalog": "hive",
    "claimed_by": None,
    "claimed_at": None,
    "starburst_query_id": "20261118_093000_00042_abcde",
    "next_poll_at": "2026-11-18T09:30:20Z",
    "poll_count": 3,
    "row_count": None,
    "size_bytes": None,
    "error_message": None,
}


class TriggerBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"job_name": "reconciliation", "reason": "smoke test after the deploy"}]},
    )

    job_name: str = Field(max_length=100)
    # Its length is judged by the service, whose sentence says what a reason is for.
    reason: str = Field(default="", description="Why: kept in the audit log.")
    force: bool = Field(default=False, strict=True, description="Reconciliation: delete however many orphans.")


@router.post(
    "/api/ops/jobs/trigger",
    status_code=202,
    summary="Run a background job now",
    responses=documented(TRIGGER_EXAMPLE, status=202, description="Queued; the job is at `Location`."),
)
async def trigger_job(body: TriggerBody, plane: ThePlane, caller: Asking, key: KeyHeader = None) -> Response:
    job = await service.trigger(
        plane.core,
        body.job_name,
        actor=caller.actor,
        reason=body.reason,
        force=body.force,
        idempotency=key_of(caller, "POST /api/ops/jobs/trigger", key, body.model_dump()),
    )
    return answer(service.trigger_json(job), 202, {"Location": location(job.id)})


class RefreshBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"engine": "warehouse", "reason": "new tables since this morning"}]},
    )

    engine: str | None = Field(default=None, max_length=100, description="Left out: all.")
    reason: str = Field(default="", description="Why: kept in the audit log.")


@router.post(
    "/api/schema/refresh",
    status_code=202,
    summary="Read the names of tables and columns again",
    responses=documented(TRIGGER_EXAMPLE, status=202, description="Queued; the job is at `Location`."),
)
async def refresh_schema(body: RefreshBody, plane: ThePlane, caller: Asking, key: KeyHeader = None) -> Response:
    job = await service.refresh(
        plane,
        body.engine,
        actor=caller.actor,
        reason=body.reason,
        idempotency=key_of(caller, "POST /api/schema/refresh", key, body.model_dump()),
    )
    return answer(service.trigger_json(job), 202, {"Location": location(job.id)})


@router.get("/api/ops/jobs/status", summary="How the background jobs are", responses=documented([STATUS_EXAMPLE], Any))
async def jobs_status(plane: ThePlane, caller: Asking) -> Response:
    return answer([service.state_json(state) for state in await records.states(plane.core.db)])


@router.get(
    "/api/ops/export-jobs", summary="Jobs of exports, newest first", responses=documented_page(EXPORT_JOB_EXAMPLE)
)
async def export_jobs(
    plane: ThePlane,
    caller: Asking,
    status: Annotated[list[str] | None, Query(description="One or several.")] = None,
    snapshot_id: Annotated[str | None, Query(max_length=100)] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    found = await operating.export_jobs(plane, split(status), snapshot_id, limit=limit, cursor=cursor)
    return page(found.shown, found.next_cursor, searched_back_to=found.searched_back_to)
