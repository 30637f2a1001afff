"""`/api/exports` and `/api/engines`: files from SQL, and what the engines know."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import Header, Query
from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from paddock import tracing
from paddock.api import global_config
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso
from paddock.api.errors import ApiError, invalid_field, not_found
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import path_id
from paddock.api.job_json import EXAMPLE_ID
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import Plane, ThePlane
from paddock.api.tokens import Caller, check_engine_role, may_use
from paddock.config import Config
from paddock.engines.registry import settings_from
from paddock.engines.settings import MISSING_ROLE, EngineSettings, TrinoSettings
from paddock.exports import asking, downloading, plain, taken
from paddock.exports.model import Action, AskPayload, Sql
from paddock.exports.plain import Export, NewExport
from paddock.exports.request import MAX_DURATION, QUOTA, ExportRequest, limits, new_export, one_engine, target_of
from paddock.jobs.model import JsonObject
from paddock.jobs.waiting import until_ended
from paddock.log import masked

router = guarded_router("exports")

ROLE = r"^[A-Za-z0-9_.-]{1,128}$"
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


class AskBody(BaseModel):
    model_config = ConfigDict(
        extra="forbid", title="Question", json_schema_extra={"examples": [{"sql": "SELECT 42 AS answer"}]}
    )

    sql: Sql | None = None
    table: str | None = Field(default=None, max_length=500)
    catalog: str | None = Field(default=None, max_length=200)
    schema_name: str | None = Field(default=None, max_length=200, alias="schema")
    parameters: dict[str, Any] = Field(default_factory=dict)
    rows: int = Field(default=20, ge=1, le=200)


EXPORT_EXAMPLE: dict[str, Any] = {
    "id": EXAMPLE_ID,
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
    new = await asked_export(plane, caller, body, role)
    idempotency = key_of(caller, "POST /api/exports", key, [await request.json(), role])
    await taken.check(plane.core, plane.config, new.target, caller.sees, idempotency)
    made = await plain.create(plane.core, new, idempotency=idempotency)
    return answer(export_json(made), 202, {"Location": f"/api/exports/{made.id}"})


async def asked_export(plane: Plane, caller: Caller, body: ExportRequest, role: str | None) -> NewExport:
    name, _ = allowed_engine(plane.config, caller, body.engine, role)
    at = datetime.now(UTC)
    target = target_of(body, at)
    if target is not None and (
        target.name not in plane.config.destinations or not may_use(caller.destinations, target.name)
    ):
        raise ApiError(
            403,
            "destination_not_allowed",
            f"This token may not write to a destination '{target.name}'.",
            hint="Ask for it to be granted to your token, or leave `destination` out and download the files.",
        )
    return new_export(
        plane.config,
        body,
        engine=name,
        owner=caller.owner,
        role=role,
        limits=await limits(plane.core.db),
        at=at,
        traceparent=tracing.inject(),
    )


def allowed_engine(config: Config, caller: Caller, named: str | None, role: str | None) -> tuple[str, EngineSettings]:
    known = settings_from(config)
    mine = [engine for engine in known if may_use(caller.engines, engine)]
    name = one_engine(named, mine)
    if name not in mine:
        raise ApiError(
            403,
            "engine_not_allowed",
            f"There is no engine '{name}' that this token may use.",
            hint=f"Yours: {', '.join(mine) or 'none'}. Others must be configured, and granted to your token.",
        )
    check_role(caller, known[name], role)
    return name, known[name]


def check_role(caller: Caller, settings: EngineSettings, role: str | None) -> None:
    if role is None and settings.requires_role:
        raise ApiError(
            422,
            "missing_use_case_id",
            MISSING_ROLE,
            hint="This engine runs every query under a role: send it as X-Use-Case-Id (CLI: --role).",
        )
    check_engine_role(caller, role)


@router.get("/api/exports", summary="Exports, newest first", responses=documented_page(EXPORT_EXAMPLE))
async def list_exports(
    plane: ThePlane,
    caller: Asking,
    owner: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    if owner is not None and not caller.sees(owner):
        return page([], None)
    found = await plain.page(plane.core.db, caller.scope or owner, before=read_place(cursor), limit=limit)
    shown = [export_json(export) for export in found]
    return page(shown, next_cursor(shown, limit))


@router.get("/api/exports/{export_id}", summary="One export", responses=documented(EXPORT_EXAMPLE))
async def get_export(
    export_id: str,
    plane: ThePlane,
    caller: Asking,
    wait: Annotated[float, Query(ge=0, le=asking.LONGEST_WAIT, description="Seconds to wait for its end.")] = 0,
) -> Response:
    found = await visible(plane, caller, export_id)
    if wait and found.job is not None:
        await until_ended(plane.core, found.job, wait)
        found = await visible(plane, caller, export_id)
    return answer(export_json(found))


@router.delete(
    "/api/exports/{export_id}",
    status_code=202,
    summary="Delete an export and its files",
    responses=documented(EXPORT_EXAMPLE, status=202, description="Its files go, then it is gone."),
)
async def delete_export(export_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await visible(plane, caller, export_id)
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
    return answer(await downloading.files(plane.config, await visible(plane, caller, export_id), sign=sign))


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
    found = await visible(plane, caller, export_id)
    asked = request.headers
    part = await downloading.find(plane.config, found, file, asked.get("range"), asked.get("if-range"))
    if request.method == "HEAD":
        part = replace(part, body=None)
    return await downloading.download(plane.core.db, found, part, actor=caller.actor)


router.head("/api/exports/{export_id}/download", include_in_schema=False)(download)


async def visible(plane: Plane, caller: Caller, text: str) -> Export:
    found = await plain.get(plane.core.db, UUID(str(path_id(text, "export"))))
    if found is None or not caller.sees(found.owner):
        raise not_found("export")
    return found


def export_json(export: Export) -> dict[str, Any]:
    own = f"/api/exports/{export.id}"
    links = {"self": own, "job": f"/api/jobs/{export.job.id if export.job else export.job_id}"}
    if export.status == "completed":
        links |= {"download": f"{own}/download", "files": f"{own}/files"}
    return {
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
    return page([engine_json(name, known[name]) for name in sorted(known) if may_use(caller.engines, name)], None)


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
    responses=documented({"level": "catalogs", "names": ["hive", "tpch"]}),
)
async def browse(
    engine: str,
    plane: ThePlane,
    caller: Asking,
    catalog: Name = None,
    schema: Name = None,
    table: Annotated[str | None, Query(max_length=500)] = None,
    role: Role = None,
) -> Response:
    level: Action = "columns" if table else "tables" if schema else "schemas" if catalog else "catalogs"
    body = AskBody(table=table, catalog=catalog, schema=schema)
    return answer({"level": level, **await ask_engine(plane, caller, engine, level, body, role)})


async def ask_engine(
    plane: Plane, caller: Caller, engine: str, action: Action, body: AskBody, role: str | None
) -> JsonObject:
    if action in ("describe", "preview") and (body.sql is None) == (body.table is None):
        raise invalid_field("sql", "Give either sql or table.")
    if engine not in settings_from(plane.config) or not may_use(caller.engines, engine):
        raise not_found("engine")
    check_role(caller, settings_from(plane.config)[engine], role)
    payload = AskPayload(engine=engine, action=action, **body.model_dump())
    return asking.answer_of(await asking.ask(plane.core, payload, owner=caller.owner, role=role))
