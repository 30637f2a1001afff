"""An instance as callers see it: never its token, never where its process listens."""

from typing import Any

from paddock.api.durations import iso
from paddock.api.plane import ControlPlane
from paddock.exports import snapshot_states
from paddock.exports.mapping_examples import MAPPING_ID
from paddock.exports.snapshot_states import SnapshotPart
from paddock.instances.model import Instance

INSTANCE_ID = "019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7"
EXAMPLE: dict[str, Any] = {
    "id": INSTANCE_ID,
    "name": "flights",
    "description": "",
    "owner": "ada",
    "owner_username": "ada",
    "status": "running",
    "wrapper_type": "ladybug",
    "mapping_id": MAPPING_ID,
    "mapping_version": 2,
    "snapshot_id": "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7",
    "pending_snapshot_id": None,
    "pod_name": f"ladybug-wrapper-{INSTANCE_ID}-1",
    "url_slug": INSTANCE_ID.replace("-", ""),
    "instance_url": f"/api/instances/{INSTANCE_ID}",
    "progress": None,
    "counts": {"nodes": {"Airport": 3_400}, "edges": {"ROUTE": 67_000}},
    "dangling_edges": {"ROUTE": 12},
    "error": None,
    "memory_gb": 1,
    "cpu_cores": 2,
    "ttl": "PT86400S",
    "inactivity_timeout": "PT14400S",
    "created_at": "2026-11-16T09:30:00Z",
    "started_at": "2026-11-16T09:30:07Z",
    "ended_at": None,
    "last_activity_at": "2026-11-16T09:31:00Z",
    "expires_at": "2026-11-17T09:30:07Z",
    "shared_with": [],
    "job_id": None,
    "links": {"self": f"/api/instances/{INSTANCE_ID}"},
}


def brief_json(plane: ControlPlane, instance: Instance) -> dict[str, Any]:
    own = f"/api/instances/{instance.id}"
    error = instance.error and {name: value for name, value in instance.error.items() if name != "cause"}
    return {
        "id": instance.id,
        "name": instance.name,
        "description": instance.description,
        "owner": instance.owner,
        "owner_username": instance.owner,
        "status": instance.status,
        "wrapper_type": instance.wrapper_type,
        "mapping_id": instance.mapping_id,
        "mapping_version": instance.mapping_version,
        "snapshot_id": instance.snapshot_id,
        "pending_snapshot_id": instance.pending_snapshot_id,
        "pod_name": instance.pod_name,
        "url_slug": instance.slug,
        "instance_url": f"{(plane.config.public_url or '').rstrip('/')}{own}",
        "progress": _progress(instance),
        "counts": instance.counts,
        "dangling_edges": instance.dangling_edges,
        "error": error,
        "memory_gb": instance.memory_gb,
        "cpu_cores": instance.cpu_cores,
        "ttl": iso(instance.ttl),
        "inactivity_timeout": iso(instance.inactivity_timeout),
        "created_at": instance.created_at,
        "started_at": instance.started_at,
        "ended_at": instance.ended_at,
        "last_activity_at": instance.last_activity_at,
        "expires_at": instance.expires_at,
        "shared_with": list(instance.shared_with),
        "job_id": instance.job_id,
        "links": _links(instance, own),
    }


def _progress(instance: Instance) -> dict[str, Any] | None:
    if instance.status == "waiting_for_snapshot":
        return {"phase": "waiting", "percent": None, "eta_seconds": None, "tables": []}
    if instance.status == "starting":
        return instance.progress or {"phase": "starting", "percent": None, "eta_seconds": None, "tables": []}
    return None


def _links(instance: Instance, own: str) -> dict[str, str]:
    links = {"self": own, "mapping": f"/api/mappings/{instance.mapping_id}", "events": f"{own}/events"}
    snapshot = instance.snapshot_id or instance.pending_snapshot_id
    if snapshot is not None:
        links["snapshot"] = f"/api/snapshots/{snapshot}"
    if instance.status == "running":
        links |= {"query": f"{own}/query", "schema": f"{own}/schema", "algorithms": f"{own}/algo"}
    if instance.status in ("running", "failed"):
        links |= {"reopen": f"{own}/reopen", "logs": f"{own}/logs"}
    if instance.job_id is not None:
        links["job"] = f"/api/jobs/{instance.job_id}"
    return links


async def instance_json(plane: ControlPlane, instance: Instance) -> dict[str, Any]:
    """With how far the snapshot is that it waits for."""
    shown = brief_json(plane, instance)
    if instance.status == "waiting_for_snapshot" and instance.pending_snapshot_id is not None:
        snapshot = await snapshot_states.get(plane.core.db, instance.pending_snapshot_id)
        if snapshot is not None:
            parts = await snapshot_states.parts(plane.core.db, snapshot)
            shown["progress"] = _waiting(parts)
    return shown


def _waiting(parts: list[SnapshotPart]) -> dict[str, Any]:
    tables = [
        {
            "section": part.section,
            "name": part.name,
            "rows": part.rows,
            "done": part.rows if part.rows is not None else (part.report or {}).get("rows", 0),
        }
        for part in parts
    ]
    ended = sum(part.status == "completed" for part in parts)
    percent = round(100 * ended / len(parts)) if parts else None
    return {"phase": "waiting", "percent": percent, "eta_seconds": None, "tables": tables[:200]}
