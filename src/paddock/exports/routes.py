"""`/api/exports` and `/api/engines`: files from SQL, and what the engines know."""

from typing import Annotated, Any, Literal

from fastapi import Header, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from paddock.api import global_config
from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import EXAMPLE_ID
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.engines.registry import settings_from
from paddock.engines.settings import EngineSettings, TrinoSettings
from paddock.exports import asking, downloading, export_files, plain, service
from paddock.exports.model import Action
from paddock.exports.plain import Export
from paddock.exports.request import MAX_DURATION, QUOTA, ExportRequest
from paddock.exports.service import ROLE, AskBody, ask_engine, browse_engine, visible_export
from paddock.jobs.waiting import until_ended
from paddock.log import masked

router = guarded_router("exports", PEOPLE)

Role = Annotated[str | None, Header(alias="X-Use-Case-Id", pattern=ROLE, description="The engine role to run under.")]

global_config.declare(
    MAX_DURATION[0],
    Annotated[int, Field(ge=1, le=7 * 86_400)],
    MAX_DURATION[1],
    "How long one query of an export may take, queueing included.",
)
global_config.declare(
    QUOTA[0],
    Annotated[int, Field(ge=0)] | None,
    QUOTA[1],
    "How many bytes of plain exports one owner may keep; empty: as many as they like.",
)


EXPORT_EXAMPLE: dict[str, Any] = {
    "id": EXAMPLE_ID,
    "name": "The answer",
    "status": "completed",
    "owner": "ada",
    "engine": "duckdb",
    "role": None,
    "job_id": EXAMPLE_ID,
    "request": {"sql": "SELECT 42 AS answer", "format": "parquet"},
    "rows": 1,
    "bytes": 412,
    "files": 1,
    "report": None,
    "error": None,
    "ttl": "PT604800S",
    "created_at": "2026-11-16T09:30:00Z",
    "ended_at": "2026-11-16T09:30:01Z",
    "expires_at": "2026-11-23T09:30:00Z",
    "links": {"self": f"/api/exports/{EXAMPLE_ID}", "job": f"/api/jobs/{EXAMPLE_ID}"},
}
ENGINE_EXAMPLE: dict[str, Any] = {
    "name": "duckdb",
    "type": "duckdb",
    "description": "",
    "requires_role": False,
    "unload": False,
    "catalog": None,
    "schema": None,
}


@router.post(
    "/api/exports",
    status_code=202,
    summary="Export a query or a table to files",
    responses=documented(EXPORT_EXAMPLE, status=202, description="Accepted; `Location` is the export."),
)
async def create_export(
    request: Request, body: ExportRequest, plane: ThePlane, caller: Asking, key: KeyHeader = None, role: Role = None
) -> Response:
    idempotency = key_of(caller, "POST /api/exports", key, [await request.json(), role])
    made = await service.create_export(plane, caller, body, role, idempotency=idempotency)
    return answer(export_json(made), 202, {"Location": f"/api/exports/{made.id}"})


@router.get("/api/exports", summary="Exports, newest first", responses=documented_page(EXPORT_EXAMPLE))
async def list_exports(
    plane: ThePlane,
    caller: Asking,
    owner: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    status: Annotated[Literal["pending", "completed", "failed", "cancelled", "deleting"] | None, Query()] = None,
    engine: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    q: Annotated[
        str | None, Query(min_length=1, max_length=500, description="A part of the name, the table or the query.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    if owner is not None and not caller.sees(owner):
        return page([], None)
    found = await plain.page(
        plane.core.db,
        caller.scope or owner,
        status=status,
        engine=engine,
        text=None if q is None else q.replace("\0", ""),
        before=read_place(cursor),
        limit=limit,
    )
    shown = [export_json(export) for export in found]
    return page(shown, next_cursor(shown, limit))


@router.get("/api/exports/{export_id}", summary="One export", responses=documented(EXPORT_EXAMPLE))
async def get_export(
    export_id: str,
    plane: ThePlane,
    caller: Asking,
    wait: Annotated[float, Query(ge=0, le=asking.LONGEST_WAIT, description="Seconds to wait for its end.")] = 0,
) -> Response:
    found = await visible_export(plane, caller, export_id)
    if wait and found.job is not None:
        await until_ended(plane.core, found.job, wait)
        found = await visible_export(plane, caller, export_id)
    return answer(export_json(found))


@router.delete(
    "/api/exports/{export_id}",
    status_code=202,
    summary="Delete an export and its files",
    responses=documented(EXPORT_EXAMPLE, status=202, description="Its files go, then it is gone."),
)
async def delete_export(export_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await visible_export(plane, caller, export_id)
    await plain.delete(plane.core, found.id, actor=caller.actor)
    left = await plain.get(plane.core.db, found.id)
    return answer(export_json(left or found), 202)


@router.get(
    "/api/exports/{export_id}/files",
    summary="The files of a completed export",
    responses=documented(
        {
            "files": [{"name": "part-00000.parquet", "rows": 1, "bytes": 412, "sha256": "…", "url": None}],
            "signed": False,
        }
    ),
)
async def list_files(
    export_id: str,
    plane: ThePlane,
    caller: Asking,
    sign: Annotated[bool, Query(description="With short-lived links to the store, where it can make them.")] = False,
) -> Response:
    found = await export_files.files_of(plane.config, await visible_export(plane, caller, export_id))
    return answer(await downloading.listed(found, sign=sign))


@router.get(
    "/api/exports/{export_id}/download",
    summary="The file, with Range; several files as a zip",
    responses={
        **documented({}),
        200: {"content": {"application/octet-stream": {"example": "PAR1…"}}, "description": "The bytes."},
    },
    response_class=Response,
)
async def download(
    request: Request,
    export_id: str,
    plane: ThePlane,
    caller: Asking,
    file: Annotated[str | None, Query(max_length=1000, description="One of several, by its name.")] = None,
) -> Response:
    found = await export_files.files_of(plane.config, await visible_export(plane, caller, export_id))
    return await downloading.respond(request, plane.core.db, found, file, actor=caller.actor)


router.head("/api/exports/{export_id}/download", include_in_schema=False)(download)


def export_json(export: Export) -> dict[str, Any]:
    own = f"/api/exports/{export.id}"
    links = {"self": own, "job": f"/api/jobs/{export.job.id if export.job else export.job_id}"}
    if export.status == "completed":
        links |= {"download": f"{own}/download", "files": f"{own}/files"}
    return {
        "name": export.name,
        "id": export.id,
        "status": export.shown_status,
        "owner": export.owner,
        "engine": export.engine,
        "role": export.role,
        "job_id": export.job.id if export.job else export.job_id,
        "request": masked(export.request),
        "rows": export.rows,
        "bytes": export.bytes,
        "files": export.files,
        "report": export.job.report if export.job else None,
        "error": export.error,
        "ttl": iso(export.ttl),
        "created_at": export.created_at,
        "ended_at": export.ended_at,
        "expires_at": export.expires_at,
        "links": links,
    }


@router.get("/api/engines", summary="The engines your token may use", responses=documented_page(ENGINE_EXAMPLE))
async def list_engines(plane: ThePlane, caller: Asking) -> Response:
    known = settings_from(plane.config)
    return page([engine_json(name, known[name]) for name in sorted(known) if caller.may_use("engines", name)], None)


def engine_json(name: str, settings: EngineSettings) -> dict[str, Any]:
    trino = settings if isinstance(settings, TrinoSettings) else None
    return {
        "name": name,
        "type": settings.type,
        "description": settings.description,
        "requires_role": settings.requires_role,
        "unload": trino is not None and trino.can_unload,
        "catalog": None if trino is None else trino.catalog,
        "schema": None if trino is None else trino.schema_,
    }


DESCRIBED = {"columns": [{"name": "answer", "type": "INT32", "arrow": "int32", "native": "INTEGER"}]}


@router.post(
    "/api/engines/{engine}/describe", summary="What a query gives, without running it", responses=documented(DESCRIBED)
)
async def describe(engine: str, body: AskBody, plane: ThePlane, caller: Asking, role: Role = None) -> Response:
    return answer(await ask_engine(plane, caller, engine, "describe", body, role))


@router.post(
    "/api/engines/{engine}/preview",
    summary="The first rows of a query",
    responses=documented({**DESCRIBED, "rows": [[42]], "cut": False}),
)
async def preview(engine: str, body: AskBody, plane: ThePlane, caller: Asking, role: Role = None) -> Response:
    return answer(await ask_engine(plane, caller, engine, "preview", body, role))


@router.get(
    "/api/engines/{engine}/check",
    summary="Connects, and says what works",
    responses=documented({"findings": [{"what": "connection", "ok": True, "message": "DuckDB 1.5", "hint": None}]}),
)
async def check(engine: str, plane: ThePlane, caller: Asking, role: Role = None) -> Response:
    return answer(await ask_engine(plane, caller, engine, "check", AskBody(), role))


Name = Annotated[str | None, Query(max_length=200)]


@router.get(
    "/api/engines/{engine}/browse",
    summary="Catalogs, then schemas of one, tables of one, columns of one",
    responses=documented(
        {"level": "catalogs", "names": ["hive", "tpch"], "from": "cache", "as_of": "2026-11-18T09:30:00Z"}
    ),
)
async def browse(
    engine: str,
    plane: ThePlane,
    caller: Asking,
    catalog: Name = None,
    schema: Name = None,
    table: Annotated[str | None, Query(max_length=500)] = None,
    live: Annotated[bool, Query(description="Ask the engine, whatever the cache has.")] = False,
    role: Role = None,
) -> Response:
    level: Action = "columns" if table else "tables" if schema else "schemas" if catalog else "catalogs"
    body = AskBody(table=table, catalog=catalog, schema=schema)
    return answer({"level": level, **await browse_engine(plane, caller, engine, level, body, role, live=live)})
