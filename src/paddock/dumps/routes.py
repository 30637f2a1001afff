"""`/export/...`: dumps as StarbaseDB's clients know them.

Answers are {"result": ...}, errors {"error": "..."} (`paddock.api.errors`), times `YYYY-MM-DD HH:MM:SS` in UTC, and every
key is always there. Who may not have a database sees neither it nor its dumps; that is asked at every request again.
"""

from typing import Annotated, Any, Literal

import orjson
from fastapi import Path, Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import Responses
from paddock.api.errors import ApiError
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.keyset import cursor_after
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, read_cursor
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.tokens import Caller
from paddock.dumps import downloading, dumps, looking, syncing
from paddock.dumps.answering import dump_json
from paddock.dumps.database_settings import databases_from
from paddock.dumps.databases import databases_of
from paddock.dumps.model import DumpOptions, Format
from paddock.dumps.request import DumpRequest, refused, which
from paddock.dumps.service import cancel_or_remove, own_dump, prepare_dump, visible_databases, visible_dump
from paddock.dumps.settings import DumpSettings

router = guarded_router("dumps", PEOPLE)

EXAMPLE_ID = "export_20261116-093000_k3x9qa"
STARTED_EXAMPLE: dict[str, Any] = {
    "jobId": EXAMPLE_ID,
    "status": "pending",
    "statusUrl": f"/export/jobs/{EXAMPLE_ID}",
    "estimatedTables": None,
}
STATUS_EXAMPLE: dict[str, Any] = {
    "jobId": EXAMPLE_ID,
    "status": "in_progress",
    "database": "shop",
    "format": "sql",
    "completedTables": 3,
    "totalTables": 12,
    "currentTable": "orders",
    "rowsWritten": 120_000,
    "bytesWritten": 8_388_608,
    "percent": 31.5,
    "etaSeconds": 12,
    "pointInTime": "2026-11-16 09:30:01",
    "waitingReason": None,
    "snapshotAgeSeconds": None,
    "restarts": 0,
    "createdAt": "2026-11-16 09:30:00",
    "completedAt": None,
    "errorMessage": None,
    "owner": "ada",
    "request": {"format": "sql", "database": "shop"},
    "fileName": None,
    "fileBytes": None,
    "digest": None,
    "partBytes": None,
    "tables": None,
    "downloadUrl": None,
    "expiresAt": None,
    "schedule": None,
    "job": "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7",
}

Version = Annotated[int, Query(ge=1, le=2, description="2: a cancelled export is `cancelled` and not `failed`.")]


def _documented(example: Any, *, status: int = 200, description: str = "Done.", **beside: Any) -> Responses:
    def response(content: Any, description: str) -> dict[str, Any]:
        return {"description": description, "content": {"application/json": {"example": content}}}

    return {
        status: response({"result": example, **beside}, description),
        "default": response({"error": "Table 't' does not exist."}, "Refused; `X-Error-Code` is stable."),
    }


def _answer(result: Any, status: int = 200, headers: dict[str, str] | None = None, **beside: Any) -> Response:
    content = orjson.dumps({"result": result, **beside}, default=str)
    return Response(content, status, headers, media_type="application/json")


@router.post(
    "/export/dump",
    status_code=202,
    summary="Export a whole database, or a table of it, in the background",
    responses=_documented(STARTED_EXAMPLE, status=202, description="Accepted; `statusUrl` tells how it goes on."),
)
async def start_dump(
    request: Request, body: DumpRequest, plane: ThePlane, caller: Asking, key: KeyHeader = None
) -> Response:
    new = prepare_dump(plane, caller, body)
    await looking.refuse_unknown_tables(plane.config, new.database, new.options)
    idempotency = key_of(caller, "POST /export/dump", key, await request.json())
    made = await dumps.create(plane.core, new, idempotency=idempotency)
    own = f"/export/jobs/{made.id}"
    started = {
        "jobId": made.id,
        # Though a worker may have claimed it already: it is what StarbaseDB answers.
        "status": "pending",
        "statusUrl": own,
        "estimatedTables": await dumps.likely_tables(plane.core.db, new),
    }
    return _answer(started, 202, {"Location": own})


TablePath = Annotated[str, Path(min_length=1, max_length=500)]
Database = Annotated[str | None, Query(max_length=100, description="Needed where several are configured.")]


def _streamed_example(media_type: str, example: str) -> Responses:
    content = {media_type: {"example": example}}
    return {**_documented({}), 200: {"content": content, "description": "The bytes, as they are made."}}


@router.get(
    "/export/dump",
    summary="A small database as SQL, streamed",
    responses=_streamed_example("application/x-sqlite3", "BEGIN TRANSACTION;…"),
    response_class=Response,
)
async def stream_dump(plane: ThePlane, caller: Asking, database: Database = None) -> Response:
    return _stream(plane, caller, database, "sql", DumpOptions(), "application/x-sqlite3", "database_dump.sql")


@router.get(
    "/export/json/{table:path}",
    summary="A table as JSON, streamed",
    responses=_streamed_example("application/json", '[{"id": 1}]'),
    response_class=Response,
)
async def stream_json(table: TablePath, plane: ThePlane, caller: Asking, database: Database = None) -> Response:
    return _stream(
        plane, caller, database, "json", DumpOptions(tables=[table]), "application/json", f"{table}_export.json"
    )


@router.get(
    "/export/csv/{table:path}",
    summary="A table as CSV, streamed",
    responses=_streamed_example("text/csv", "id,name"),
    response_class=Response,
)
async def stream_csv(
    table: TablePath,
    plane: ThePlane,
    caller: Asking,
    database: Database = None,
    csv_safe: Annotated[bool, Query(alias="csvSafe")] = False,
) -> Response:
    options = DumpOptions(tables=[table], csv_safe=csv_safe)
    return _stream(plane, caller, database, "csv", options, "text/csv", f"{table}_export.csv")


def _stream(
    plane: ControlPlane,
    caller: Caller,
    named: str | None,
    format: Format,
    options: DumpOptions,
    media_type: str,
    name: str,
) -> Response:
    config = plane.config
    database = which(config, named, databases_of(config, caller))
    if not databases_from(config)[database].sync:
        raise refused(
            f"Database '{database}' is not streamed. {syncing.POST_INSTEAD}"
            f" (sync = true in [dumps.databases.{database}] allows it.)",
            code="not_streamed",
        )
    slot = syncing.SLOTS.take()
    if slot is None:
        raise ApiError(
            429,
            "too_many_streams",
            f"{syncing.AT_ONCE} exports are being streamed already.",
            hint=syncing.POST_INSTEAD,
            headers={"Retry-After": "30"},
        )
    asked = {
        "database": database,
        "settings": config.of(DumpSettings).databases[database],
        "format": format,
        "options": options.model_dump(mode="json"),
        "single": bool(options.tables),
    }
    headers = {"Content-Disposition": downloading.disposition(name), "Cache-Control": "private, no-store"}
    return syncing.Streamed(
        slot, asked, longest=config.of(DumpSettings).sync_max_seconds, media_type=media_type, headers=headers
    )


@router.get("/export/jobs", summary="Exports, newest first", responses=_documented([STATUS_EXAMPLE], nextCursor=None))
async def list_dumps(
    plane: ThePlane,
    caller: Asking,
    database: Annotated[str | None, Query(max_length=100)] = None,
    status: Annotated[
        Literal["pending", "completed", "failed", "cancelled"] | None, Query(description="`pending`: under way.")
    ] = None,
    owner: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    q: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=500,
            description="A part of a name: database, table, file, schedule; or of an error.",
        ),
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
    v: Version = 1,
) -> Response:
    before: str | None = None if cursor is None else read_cursor(cursor, str)
    found = await dumps.page(
        plane.core.db,
        visible_databases(plane, caller, database),
        status=status,
        owner=owner,
        text=None if q is None else q.replace("\0", ""),
        before=before,
        limit=limit,
    )
    following = cursor_after(found, limit)
    return _answer([dump_json(dump, plane.config, v) for dump in found], nextCursor=following)


@router.get("/export/jobs/{dump_id}", summary="One export", responses=_documented(STATUS_EXAMPLE))
async def get_dump(dump_id: str, plane: ThePlane, caller: Asking, v: Version = 1) -> Response:
    found = await downloading.with_counts(plane.config, await visible_dump(plane, caller, dump_id))
    return _answer(dump_json(found, plane.config, v))


@router.delete(
    "/export/jobs/{dump_id}",
    summary="Cancel an export that runs, remove one that ended",
    responses=_documented(
        {"jobId": EXAMPLE_ID, "status": "deleted"}, description="`deleted`, or `cancelled` and still listed."
    ),
)
async def delete_dump(dump_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await own_dump(plane, caller, dump_id, deleting=True)
    return _answer({"jobId": found.id, "status": await cancel_or_remove(plane, caller, found.id)})


Redirect = Annotated[bool, Query(description="Answer with a link to the store, where it makes links; 5 minutes.")]


@router.get(
    "/export/jobs/{dump_id}/download",
    summary="The file, with Range",
    responses={
        **_documented({}),
        200: {"content": {"application/sql": {"example": "BEGIN TRANSACTION;…"}}, "description": "The bytes."},
    },
    response_class=Response,
)
async def download_dump(
    request: Request, dump_id: str, plane: ThePlane, caller: Asking, redirect: Redirect = False
) -> Response:
    found = await visible_dump(plane, caller, dump_id)
    return await downloading.download(
        plane.config,
        found,
        asked=request.headers.get("range"),
        if_range=request.headers.get("if-range"),
        redirect=redirect,
        head=request.method == "HEAD",
    )


router.head("/export/jobs/{dump_id}/download", include_in_schema=False)(download_dump)
