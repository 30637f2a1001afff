"""`/api/snapshots`: the files of a mapping's version, made together."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, ConfigDict, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso
from paddock.api.errors import ApiError, invalid_field
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import optional_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, split
from paddock.api.plane import ControlPlane, ThePlane
from paddock.exports import snapshot_service, snapshot_states, snapshots
from paddock.exports.mapping_examples import MAPPING_ID
from paddock.exports.mapping_routes import Text
from paddock.exports.routes import Role
from paddock.exports.snapshot_service import SnapshotBody, changeable_snapshot, prepare_snapshot, visible_snapshot
from paddock.exports.snapshot_states import STATUSES, Snapshot, SnapshotPart
from paddock.storage.store import open_managed

router = guarded_router("snapshots", PEOPLE)

SNAPSHOT_ID = "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7"
JOB_ID = "019a8b1e-4c41-7001-8f6e-2f9d3c0a51e7"
BRIEF_EXAMPLE: dict[str, Any] = {
    "id": SNAPSHOT_ID,
    "owner": "ada",
    "name": "flights v2",
    "description": "",
    "mapping_id": MAPPING_ID,
    "mapping_version": 2,
    "engine": "duckdb",
    "role": None,
    "request": {"mode": "direct", "max_duration_seconds": 3600},
    "group_id": "019a8b1e-4c40-7000-8a10-0b1c2d3e4f50",
    "status": "ready",
    "error": None,
    "node_counts": {"Airport": 3_400},
    "edge_counts": {"ROUTE": 67_000},
    "size_bytes": 1_048_576,
    "ttl": None,
    "expires_at": None,
    "created_at": "2026-11-16T09:30:00Z",
    "ended_at": "2026-11-16T09:30:07Z",
    "links": {"self": f"/api/snapshots/{SNAPSHOT_ID}", "download": f"/api/snapshots/{SNAPSHOT_ID}/download"},
}
PART_EXAMPLE: dict[str, Any] = {
    "section": "nodes",
    "position": 0,
    "name": "Airport",
    "job_id": JOB_ID,
    "status": "completed",
    "rows": 3_400,
    "bytes": 48_576,
    "files": 1,
    "query_id": "20261116_093000_00001_abcde",
    "query_started_at": "2026-11-16T09:30:01Z",
    "error": None,
    "started_at": "2026-11-16T09:30:00Z",
    "report": None,
}
SNAPSHOT_EXAMPLE: dict[str, Any] = {**BRIEF_EXAMPLE, "parts": [PART_EXAMPLE]}
MANIFEST_EXAMPLE: dict[str, Any] = {
    "snapshot_id": SNAPSHOT_ID,
    "mapping_id": MAPPING_ID,
    "mapping_version": 2,
    "engine": "duckdb",
    "created_at": "2026-11-16T09:30:00Z",
    "ready_at": "2026-11-16T09:30:07Z",
    "rows": 3_400,
    "bytes": 48_576,
    "parts": [
        {
            "section": "nodes",
            "name": "Airport",
            "manifest": f"6f2b…/{MAPPING_ID}/v2/{SNAPSHOT_ID}/nodes/Airport/0d0f…/_manifest.json",
            "sha256": "9f86d081…",
            "rows": 3_400,
            "bytes": 48_576,
            "file_count": 1,
            "query_id": "20261116_093000_00001_abcde",
            "started_at": "2026-11-16T09:30:01Z",
            "job_id": JOB_ID,
        }
    ],
}


class CancelBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "wrong mapping"}]})

    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


@router.get("/api/snapshots", summary="Snapshots, newest first", responses=documented_page(BRIEF_EXAMPLE))
async def list_snapshots(
    plane: ThePlane,
    caller: Asking,
    mapping: Text = None,
    status: Annotated[
        list[str] | None,
        Query(max_length=20, description="One or several, also with commas; left out: all but `deleting`."),
    ] = None,
    name: Annotated[str | None, Query(min_length=1, max_length=255, description="Exactly, but for its case.")] = None,
    q: Annotated[str | None, Query(min_length=1, max_length=255, description="In name or description.")] = None,
    owner: Text = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    if owner is not None and not caller.sees(owner):
        return page([], None)
    found = await snapshot_states.page(
        plane.core.db,
        caller.scope or owner,
        mapping_id=optional_id(mapping, "mapping"),
        statuses=_statuses(status),
        name=name,
        text=q,
        before=read_place(cursor),
        limit=limit,
    )
    shown = [brief_json(one) for one in found]
    return page(shown, next_cursor(shown, limit))


def _statuses(asked: list[str] | None) -> Sequence[str] | None:
    words = split(asked)
    if words is not None and not set(words) <= set(STATUSES):
        raise invalid_field("status", f"There are {', '.join(STATUSES)}.")
    return words


@router.post(
    "/api/snapshots",
    status_code=202,
    summary="Make a snapshot of a mapping's version",
    responses=documented(SNAPSHOT_EXAMPLE, status=202, description="Accepted; `Location` is the snapshot."),
)
async def create_snapshot(
    request: Request, body: SnapshotBody, plane: ThePlane, caller: Asking, key: KeyHeader = None, role: Role = None
) -> Response:
    new = await prepare_snapshot(plane, caller, body, role)
    idempotency = key_of(caller, "POST /api/snapshots", key, [await request.json(), role])
    made = await snapshots.create(plane.core, new, actor=caller.actor, idempotency=idempotency)
    return answer(await snapshot_json(plane, made), 202, {"Location": f"/api/snapshots/{made.id}"})


@router.get("/api/snapshots/{snapshot_id}", summary="One snapshot", responses=documented(SNAPSHOT_EXAMPLE))
async def get_snapshot(snapshot_id: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await snapshot_json(plane, await visible_snapshot(plane, caller, snapshot_id)))


@router.get(
    "/api/snapshots/{snapshot_id}/manifest",
    summary="What a ready snapshot consists of",
    responses=documented(MANIFEST_EXAMPLE),
)
async def get_manifest(
    snapshot_id: str,
    plane: ThePlane,
    caller: Asking,
    files: Annotated[bool, Query(description="With the files and columns of each part, read from the store.")] = False,
) -> Response:
    found = await visible_snapshot(plane, caller, snapshot_id)
    store = open_managed(plane.config) if files else None
    return answer(await snapshot_states.manifest(plane.core.db, found, store))


@router.post(
    "/api/snapshots/{snapshot_id}/retry",
    status_code=202,
    summary="Run what failed or was cancelled again",
    responses=documented(SNAPSHOT_EXAMPLE, status=202, description="Under the role it was made with."),
)
async def retry_snapshot(
    snapshot_id: str, plane: ThePlane, caller: Asking, key: KeyHeader = None, role: Role = None
) -> Response:
    found = await changeable_snapshot(plane, caller, snapshot_id)
    if role is not None and role != found.role:
        raise ApiError(
            409,
            "role_mismatch",
            "The snapshot was made under another role, and a retry keeps that.",
            hint="Leave X-Use-Case-Id out, or make a new snapshot.",
        )
    idempotency = key_of(caller, f"POST /api/snapshots/{found.id}/retry", key, None)
    again = await snapshot_service.retry_snapshot(plane, caller, found, idempotency=idempotency)
    return answer(await snapshot_json(plane, again), 202)


@router.post(
    "/api/snapshots/{snapshot_id}/cancel",
    summary="Cancel all jobs of a snapshot",
    responses=documented({**SNAPSHOT_EXAMPLE, "status": "cancelled"}),
)
async def cancel_snapshot(
    snapshot_id: str, plane: ThePlane, caller: Asking, body: CancelBody | None = None
) -> Response:
    found = await changeable_snapshot(plane, caller, snapshot_id)
    reason = None if body is None else body.reason
    return answer(
        await snapshot_json(plane, await snapshots.cancel(plane.core, found, actor=caller.actor, reason=reason))
    )


@router.delete(
    "/api/snapshots/{snapshot_id}",
    status_code=202,
    summary="Delete a snapshot and its files",
    responses=documented(
        {**SNAPSHOT_EXAMPLE, "status": "deleting"}, status=202, description="Its files go, then it is gone."
    ),
)
async def delete_snapshot(snapshot_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await visible_snapshot(plane, caller, snapshot_id)
    await snapshots.delete(plane.core, found.id, actor=caller.actor, scope=caller.scope)
    left = await snapshot_states.get(plane.core.db, found.id)
    return answer(await snapshot_json(plane, left or found), 202)


async def snapshot_json(plane: ControlPlane, snapshot: Snapshot) -> dict[str, Any]:
    parts = await snapshot_states.parts(plane.core.db, snapshot)
    return {**brief_json(snapshot), "parts": [part_json(part) for part in parts]}


def brief_json(snapshot: Snapshot) -> dict[str, Any]:
    own = f"/api/snapshots/{snapshot.id}"
    links = {
        "self": own,
        "mapping": f"/api/mappings/{snapshot.mapping_id}",
        "jobs": f"/api/jobs?group={snapshot.group_id}",
    }
    if snapshot.status == "ready":
        links |= {"manifest": f"{own}/manifest", "files": f"{own}/files", "download": f"{own}/download"}
    elif snapshot.live:
        links["cancel"] = f"{own}/cancel"
    elif snapshot.status in ("failed", "cancelled"):
        links["retry"] = f"{own}/retry"
    if snapshot.removal_job is not None:
        links["removal"] = f"/api/jobs/{snapshot.removal_job}"
    shown = {**asdict(snapshot), "ttl": iso(snapshot.ttl), "links": links}
    del shown["removal_job"]
    return shown


def part_json(part: SnapshotPart) -> dict[str, Any]:
    """Its manifest is a place in the store: `/manifest` tells it once the whole is ready."""
    shown = asdict(part)
    del shown["manifest"], shown["manifest_sha256"]
    return shown
