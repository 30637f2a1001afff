"""Tables: the list with their health, and one of them with what is wrong, what would help, and what was done."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.pagination import read_cursor, write_cursor
from paddock.api.tokens import Caller
from paddock.jobs.model import Job, JobId
from paddock.maintenance import service, tables
from paddock.maintenance.model import ACTIONS, database_text
from paddock.maintenance.service import MaintenanceRequest
from paddock.maintenance.tables import LakeTable
from paddock.web.frame import back, clean, field, fields, form, page, plane_of, render

PAGE_LENGTH = 100
HEALTHS = ("healthy", "warning", "critical", "unknown")
FILTERS = ("catalog", "database", "health", "q")
ONE = "/tables/{catalog}/{database}/{table}"


def routes() -> list[Route]:
    return [
        page("/tables", show, PEOPLE),
        page("/tables/{name}", show_named, PEOPLE),
        page(ONE, show_one, PEOPLE),
        form(f"{ONE}/maintain", maintain, PEOPLE),
        form(f"{ONE}/look", look, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    asked = {name: clean(request.query_params.get(name) or "")[:500] or None for name in FILTERS}
    cursor = request.query_params.get("cursor") or None
    after = ("", "", "") if cursor is None else read_cursor(cursor, tuple[str, str, str])
    known = {**asked, "health": asked["health"] if asked["health"] in HEALTHS else None}
    found = await service.list_tables(plane, caller, known, after=after, limit=PAGE_LENGTH)
    return await render(
        request,
        caller,
        "tables.html",
        tables=found,
        path_of=path_of,
        catalogs=await service.list_catalogs(plane, caller),
        summary=_summary(found),
        asked=asked,
        healths=HEALTHS,
        cursor=cursor,
        next_cursor=write_cursor(service.place_of(found)) if len(found) == PAGE_LENGTH else None,
    )


async def show_named(request: Request, caller: Caller) -> Response:
    """Leads from the name that events and tags have, catalog.database.table, to the table."""
    catalog, _, rest = clean(request.path_params["name"]).partition(".")
    database, _, table = rest.rpartition(".")
    named = service.table_name(catalog, database, table)
    return back(request, path_of(await service.visible_table(plane_of(request), caller, named)))


async def show_one(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await _visible_table(request, caller)
    job = None if found.live_id is None else await plane.core.job(JobId(UUID(found.live_id)))
    shown = service.table_json(plane, caller, found, await service.now_of(plane))
    return await render(
        request,
        caller,
        "table.html",
        table=found,
        path=path_of(found),
        shown=shown,
        actions=ACTIONS,
        wanted={each["action"] for each in shown["recommended"]},
        job=job if job is not None and caller.sees(job.owner) else None,
        busy=job is not None,
        plan=await _last_plan(request, caller, found),
        history=await tables.history(plane.core.db, found.table, limit=30),
    )


async def _last_plan(request: Request, caller: Caller, found: LakeTable) -> Job | None:
    """The dry run that the person just asked for, by the address."""
    asked = request.query_params.get("plan") or ""
    try:
        job = await plane_of(request).core.job(JobId(UUID(asked)))
    except ValueError:
        return None
    mine = job is not None and caller.sees(job.owner) and job.payload.get("uuid") == found.uuid
    return job if mine else None


async def maintain(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    seen = await _visible_table(request, caller)
    found = await service.known_table(plane, caller, seen.table)
    dry_run = await field(request, "dry_run") == "on"
    body = MaintenanceRequest(actions=await fields(request, "action"), dry_run=dry_run)
    job, _ = await service.submit(plane, caller, found, service.check_request(caller, body))
    if dry_run:
        return back(request, f"{path_of(found)}?plan={job.id}", "The plan is being made; nothing is changed.")
    return back(request, path_of(found), "Its maintenance is under way.")


async def look(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await _visible_table(request, caller)
    await service.look(plane, caller, found.table, wait=20)
    return back(request, path_of(found), "It was looked at just now.")


async def _visible_table(request: Request, caller: Caller) -> LakeTable:
    parts: Mapping[str, Any] = request.path_params
    name = service.table_name(parts["catalog"], parts["database"], parts["table"])
    return await service.visible_table(plane_of(request), caller, name)


def path_of(found: LakeTable) -> str:
    database = database_text(found.table.namespace)
    return "/tables/" + "/".join(quote(part, safe="") for part in (found.catalog, database, found.name))


def _summary(found: list[LakeTable]) -> str:
    ill = sum(table.health in ("warning", "critical") for table in found)
    if not ill:
        return f"{len(found):,} shown, none of them ill."
    return f"{len(found):,} shown, {ill:,} of them {'is' if ill == 1 else 'are'} ill."
