"""The jobs of exports with the fields that the older deployment's table had."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from paddock.api.ids import optional_id
from paddock.api.plane import ControlPlane
from paddock.engines.registry import settings_from
from paddock.exports import snapshot_states
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Job
from paddock.log import masked

TYPES = {"nodes": "node", "edges": "edge"}


@dataclass(frozen=True, slots=True)
class ShownJobs:
    shown: list[dict[str, Any]]
    next_cursor: str | None
    searched_back_to: datetime | None


async def export_jobs(
    plane: ControlPlane, statuses: tuple[str, ...] | None, snapshot_id: str | None, *, limit: int, cursor: str | None
) -> ShownJobs:
    """Newest first; of one snapshot, or of all."""
    group = None
    if (id := optional_id(snapshot_id, "snapshot_id")) is not None:
        snapshot = await snapshot_states.get(plane.core.db, id)
        if snapshot is None:
            return ShownJobs([], None, None)
        group = snapshot.group_id
    asked = Filter(kind="export", status=statuses, group=group, include_cleanups=False)
    found = await reading.page(plane.core.db, asked, limit=limit, cursor=cursor)
    catalogs = {name: getattr(engine, "catalog", None) for name, engine in settings_from(plane.config).items()}
    shown = [_export_job_json(job, plane.config.object_store, catalogs) for job in found.jobs]
    return ShownJobs(shown, found.next_cursor, found.searched_back_to)


def _export_job_json(job: Job, store: str, catalogs: dict[str, str | None]) -> dict[str, Any]:
    payload, saved, made = job.payload, job.saved or {}, job.result if isinstance(job.result, dict) else {}
    report = job.report or {}
    columns = payload.get("columns")
    return {
        "id": job.id,
        "snapshot_id": payload.get("snapshot_id"),
        "job_type": TYPES.get(payload.get("section", "")),
        "entity_name": payload.get("name"),
        "status": job.status,
        "gcs_path": f"{store.rstrip('/')}/{payload['output']}",
        "sql": masked(payload.get("sql")),
        "column_names": None if columns is None else [column["name"] for column in columns],
        "starburst_catalog": payload.get("catalog") or catalogs.get(payload["engine"]),
        "claimed_by": job.claimed_by,
        "claimed_at": job.claimed_at,
        "starburst_query_id": made.get("query_id") or saved.get("query_id"),
        "next_poll_at": saved.get("next_poll_at") if job.status == "submitted" else None,
        "poll_count": saved.get("poll_count"),
        "row_count": made.get("rows", report.get("rows")),
        "size_bytes": made.get("bytes", report.get("bytes")),
        "error_message": job.error_message,
    }
