"""`/api/snapshots/{id}/files` and `/download`: what a ready snapshot consists of, for whoever takes it elsewhere."""

from typing import Annotated

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.guard import guarded_router
from paddock.api.pagination import answer
from paddock.api.plane import ThePlane
from paddock.exports import downloading, snapshot_files
from paddock.exports.snapshot_service import visible_snapshot

router = guarded_router("snapshots", PEOPLE)

FILES_EXAMPLE = {
    "files": [
        {"name": "manifest.json", "rows": None, "bytes": 1_420, "sha256": "…", "url": None},
        {"name": "nodes/Airport/part-00000.parquet", "rows": 3_400, "bytes": 48_576, "sha256": "…", "url": None},
    ],
    "signed": False,
}


@router.get(
    "/api/snapshots/{snapshot_id}/files",
    summary="The files of a ready snapshot, its manifest first",
    responses=documented(FILES_EXAMPLE),
)
async def list_files(
    snapshot_id: str,
    plane: ThePlane,
    caller: Asking,
    sign: Annotated[bool, Query(description="With short-lived links to the store, where it can make them.")] = False,
) -> Response:
    found = await visible_snapshot(plane, caller, snapshot_id)
    return answer(
        await downloading.listed(await snapshot_files.files_of(plane.config, plane.core.db, found), sign=sign)
    )


@router.get(
    "/api/snapshots/{snapshot_id}/download",
    summary="All files and the manifest as a zip, or one of them with Range",
    responses={
        **documented({}),
        200: {"content": {"application/zip": {"example": "PK…"}}, "description": "The bytes."},
    },
    response_class=Response,
)
async def download(
    request: Request,
    snapshot_id: str,
    plane: ThePlane,
    caller: Asking,
    file: Annotated[str | None, Query(max_length=1000, description="One of them, by its name.")] = None,
) -> Response:
    snapshot = await visible_snapshot(plane, caller, snapshot_id)
    found = await snapshot_files.files_of(plane.config, plane.core.db, snapshot, file)
    return await downloading.respond(request, plane.core.db, found, file, actor=caller.actor)


router.head("/api/snapshots/{snapshot_id}/download", include_in_schema=False)(download)
