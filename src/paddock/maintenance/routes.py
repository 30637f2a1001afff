"""`/tables/{db}/{table}/maintenance`, `/api/tables` and `/api/catalogs`."""

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking, authorize
from paddock.api.documenting import documented, documented_page
from paddock.api.guard import GuardedRoute, guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.job_json import WHOLE_EXAMPLE, WholeJob, job_json, location
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, read_cursor, write_cursor
from paddock.api.plane import ThePlane
from paddock.maintenance import service, tables
from paddock.maintenance.access import may_have
from paddock.maintenance.service import MaintenanceRequest

router = guarded_router("tables", PEOPLE)


class DrainedRoute(GuardedRoute):
    """Whoever may ask is told of a drain before the body is read."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def drained_first(request: Request) -> Response:
            await authorize(request, self.roles, request.method, self.path_format)
            await service.refuse_when_draining(request.app.state.plane)
            return await handle(request)

        return drained_first


submitting = guarded_router("tables", PEOPLE, DrainedRoute)

TABLE_EXAMPLE: dict[str, Any] = {
    "catalog": "lake",
    "database": "sales",
    "name": "orders",
    "health": "warning",
    "needs_maintenance": True,
    "uuid": "7c1f0a52-2b6c-4a53-9f0e-5b6d5a0f3f11",
    "location": "s3://lake/sales/orders",
    "snapshot_id": 4412,
    "figures": {"data_files": 512, "small_files": 508, "bytes": 1_200_000_000, "snapshots": 14},
    "issues": [
        {
            "code": "small_files",
            "severity": "critical",
            "evidence": "508 small files could become few.",
            "action": "rewrite_data_files",
        }
    ],
    "policy": {"min_input_files": {"value": 5, "source": "default"}},
    "recommended": [{"action": "rewrite_data_files", "why": "508 small files could become few."}],
    "why_not_now": None,
    "problem": None,
    "seen_at": "2026-11-16T09:30:00Z",
    "maintained_at": None,
    "next_at": None,
    "failures": 0,
    "job_id": None,
    "tag": "table:lake.sales.orders",
}
CATALOG_EXAMPLE: dict[str, Any] = {
    "name": "lake",
    "type": "rest",
    "description": "",
    "rewrites": "embedded",
    "databases": ["sales"],
    "fence": True,
    "tables": 12,
    "healths": {"healthy": 11, "warning": 1},
    "seen_at": "2026-11-16T09:30:00Z",
    "problem": None,
}
CHECK_EXAMPLE: dict[str, Any] = {
    "findings": [{"what": "list", "ok": True, "message": "12 tables.", "hint": None}],
}
ACTION_EXAMPLE: dict[str, Any] = {
    "id": 1,
    "job_id": "019a8b1e-4c00-7000-8f6e-2f9d3c0a51e7",
    "action": "rewrite_data_files",
    "outcome": "success",
    "message": "512 files became 6, with the same 1,000,000 rows.",
    "error": None,
    "files_before": 512,
    "files_after": 6,
    "at": "2026-11-16T09:30:00Z",
    "details": {},
    "alarms": [],
}
Named = Annotated[str | None, Query(min_length=1, max_length=500)]


@submitting.post(
    "/tables/{database}/{table}/maintenance",
    status_code=202,
    summary="Maintain a table",
    responses=documented(WHOLE_EXAMPLE, WholeJob, status=202, description="Accepted; `Location` is the job."),
)
async def maintain(
    request: Request,
    database: str,
    table: str,
    body: MaintenanceRequest,
    plane: ThePlane,
    caller: Asking,
    catalog: Named = None,
    key: KeyHeader = None,
) -> Response:
    asked = service.check_request(caller, body)
    name = service.table_name(service.chosen_catalog(plane, caller, catalog), database, table)
    found = await service.known_table(plane, caller, name)
    idempotency = key_of(caller, "POST /tables/maintenance", key, [await request.json(), str(name)])
    job, was_there = await service.submit(plane, caller, found, asked, idempotency)
    headers = {"Location": location(job.id), "Retry-After": "30"}
    return answer(job_json(job, plane.core.kinds), 200 if was_there else 202, headers)


router.routes.extend(submitting.routes)


@router.get("/api/catalogs", summary="The catalogs you may use", responses=documented_page(CATALOG_EXAMPLE))
async def list_catalogs(plane: ThePlane, caller: Asking) -> Response:
    return page(await service.list_catalogs(plane, caller), None)


@router.get(
    "/api/catalogs/{catalog}/check",
    summary="Opens it, and says what works",
    responses=documented(CHECK_EXAMPLE),
)
async def check_catalog(catalog: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await service.check_catalog(plane, caller, catalog))


@router.post(
    "/api/catalogs/{catalog}/check",
    summary="The same, and for those who may use all of it also whether a table keeps a tag",
    responses=documented(CHECK_EXAMPLE),
)
async def check_catalog_with_a_tag(catalog: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await service.check_catalog(plane, caller, catalog, tag=True))


@router.get("/api/tables", summary="Tables by name, with their health", responses=documented_page(TABLE_EXAMPLE))
async def list_tables(
    plane: ThePlane,
    caller: Asking,
    catalog: Named = None,
    database: Named = None,
    health: Annotated[Literal["healthy", "warning", "critical", "unknown"] | None, Query()] = None,
    q: Annotated[str | None, Query(max_length=200, description="Part of its name.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    after = ("", "", "") if cursor is None else read_cursor(cursor, tuple[str, str, str])
    filters = {"catalog": catalog, "database": database, "health": health, "q": q or None}
    found = await service.list_tables(plane, caller, filters, after=after, limit=limit)
    now = await service.now_of(plane)
    more = write_cursor(service.place_of(found)) if len(found) == limit else None
    return page([service.table_json(plane, caller, each, now) for each in found], more)


@router.get("/api/tables/{catalog}/{database}/{table}", summary="One table", responses=documented(TABLE_EXAMPLE))
async def get_table(catalog: str, database: str, table: str, plane: ThePlane, caller: Asking) -> Response:
    found = await service.visible_table(plane, caller, service.table_name(catalog, database, table))
    return answer(service.table_json(plane, caller, found, await service.now_of(plane)))


@router.get(
    "/api/tables/{catalog}/{database}/{table}/history",
    summary="What was done to it, newest first",
    responses=documented_page(ACTION_EXAMPLE),
)
async def get_history(
    catalog: str,
    database: str,
    table: str,
    plane: ThePlane,
    caller: Asking,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    name = service.table_name(catalog, database, table)
    await service.visible_table(plane, caller, name)
    before = None if cursor is None else read_cursor(cursor, int)
    found = await tables.history(plane.core.db, name, before=before, limit=limit)
    return page(found, write_cursor(found[-1]["id"]) if len(found) == limit else None)


@router.post(
    "/api/tables/{catalog}/{database}/{table}/look", summary="Look at it now", responses=documented(TABLE_EXAMPLE)
)
async def look(
    catalog: str,
    database: str,
    table: str,
    plane: ThePlane,
    caller: Asking,
    wait: Annotated[float, Query(ge=0, le=30, description="Seconds to wait for the look.")] = 30,
) -> Response:
    name = service.table_name(catalog, database, table)
    if not may_have(plane.config, caller, name):
        raise service.unknown_table()
    await service.look(plane, caller, name, wait=wait)
    found = await service.visible_table(plane, caller, name)
    return answer(service.table_json(plane, caller, found, await service.now_of(plane)))
