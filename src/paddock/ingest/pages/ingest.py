"""Ingest: the sources, one source with its runs and files, and one run with its batches."""

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.keyset import cursor_after, read_place
from paddock.api.pagination import read_cursor, write_cursor
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.ingest import downloading, runs
from paddock.ingest.answering import file_json, run_json, source_json
from paddock.ingest.model import BATCH_STATUSES, RUN_STATUSES, Run
from paddock.ingest.service import RunBody, prepare_run, visible_batch, visible_run, visible_source, visible_sources
from paddock.ingest.views import view_of
from paddock.jobs.errors import Refused
from paddock.web.form_problems import as_refusal, by_field, status_of
from paddock.web.frame import back, clean, field, form, page, plane_of, render

RUNS_SHOWN, FILES_SHOWN, BATCHES_SHOWN = 20, 20, 100
DAYS_SHOWN = 14
SESSION_SHOWN = 200
# A view of more files than these is printed by the command line.
MOST_IN_SQL = 100


def routes() -> list[Route]:
    return [
        page("/ingest", show, PEOPLE),
        form("/ingest/runs", start, PEOPLE),
        page("/ingest/runs/{run_id}", show_run, PEOPLE),
        form("/ingest/runs/{run_id}/cancel", cancel, PEOPLE),
        form("/ingest/runs/{run_id}/delete", delete, PEOPLE),
        page("/ingest/runs/{run_id}/batches/{n}", show_batch, PEOPLE),
        form("/ingest/runs/{run_id}/batches/{n}/retry", retry, PEOPLE),
        form("/ingest/runs/{run_id}/batches/{n}/skip", skip, PEOPLE),
        page("/ingest/{source}", show_source, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = visible_sources(plane, caller)
    shown = [
        {
            **(one := await source_json(plane, name, source)),
            "session_text": orjson.dumps(one["committed_session"]).decode()[:SESSION_SHOWN],
            "schedules": await runs.schedules(plane.core.db, name, caller.scope),
        }
        for name, source in sorted(found.items())
    ]
    return await render(request, caller, "ingest.html", sources=shown)


async def show_source(request: Request, caller: Caller) -> Response:
    return await _show_source(request, caller, request.path_params["source"])


async def _show_source(
    request: Request,
    caller: Caller,
    name: str,
    *,
    asked: Mapping[str, Any] | None = None,
    problems: Mapping[str, str] | None = None,
    status: int = 200,
) -> Response:
    plane = plane_of(request)
    shown = await source_json(plane, name, visible_source(plane, caller, name))
    # Two lists on one page, each with a place of its own.
    places = {part: request.query_params.get(part) or None for part in ("runs", "files")}
    narrowed = {one: clean(request.query_params.get(one) or "")[:500] or None for one in ("q", "status", "owner")}
    if narrowed["status"] not in RUN_STATUSES:
        narrowed["status"] = None
    listed = await runs.page(
        plane.core.db,
        [name],
        statuses=None if narrowed["status"] is None else [narrowed["status"]],
        owner=narrowed["owner"],
        text=narrowed["q"],
        before=read_place(places["runs"]),
        limit=RUNS_SHOWN,
    )
    files = await runs.newest_files(plane.core.db, name, before=read_place(places["files"]), limit=FILES_SHOWN)
    return await render(
        request,
        caller,
        "ingest_source.html",
        status=status,
        source=shown,
        asked=asked or {},
        problems=problems or {},
        runs=[await run_json(plane, run) for run in listed],
        files=files,
        places=places,
        narrowed=narrowed,
        statuses=[status for status in RUN_STATUSES if status != "deleting"],
        older={"runs": cursor_after(listed, RUNS_SHOWN), "files": cursor_after(files, FILES_SHOWN)},
        days=(await runs.rows_by_day(plane.core.db, name, DAYS_SHOWN))[::-1],
        schedules=await runs.schedules(plane.core.db, name, caller.scope),
        sql=await _sql(plane, name, shown["totals"]["files"]),
    )


async def _sql(plane: ControlPlane, name: str, count: int) -> str | None:
    if not 0 < count <= MOST_IN_SQL:
        return None
    found = await runs.files(plane.core.db, name, limit=MOST_IN_SQL)
    return view_of(name, [file_json(plane, file)["path"] for file in found], every_version=False)


async def show_run(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    run = await _run(request, caller)
    asked = request.query_params
    status, cursor = clean(asked.get("status") or ""), asked.get("cursor") or None
    after: int = -1 if cursor is None else read_cursor(cursor, int)
    wanted = [status] if status in BATCH_STATUSES else None
    batches = await runs.batches(plane.core.db, run, statuses=wanted, after=after, limit=BATCHES_SHOWN)
    return await render(
        request,
        caller,
        "ingest_run.html",
        run=await run_json(plane, run),
        batches=batches,
        statuses=BATCH_STATUSES,
        asked={"status": status},
        cursor=cursor,
        next_cursor=write_cursor(batches[-1].n) if len(batches) == BATCHES_SHOWN else None,
    )


async def show_batch(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    run = await _run(request, caller)
    batch = await visible_batch(plane, run, _number(request))
    file = None if batch.file_id is None else await runs.file(plane.core.db, batch.file_id)
    return await render(
        request,
        caller,
        "ingest_batch.html",
        run=await run_json(plane, run),
        batch=batch,
        jobs=await runs.batch_jobs(plane.core.db, run, batch.n),
        rejected=[] if file is None else await downloading.rejected(plane.config, file),
    )


async def start(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    values = dict(await request.form())
    asked: dict[str, Any] = {name: clean(str(values[name])) for name in ("source", "from", "limit") if values.get(name)}
    source = str(asked.get("source", ""))
    visible_source(plane, caller, source)
    try:
        made = await runs.start(plane.core, prepare_run(plane, caller, _body(asked)), actor=caller.actor)
    except (ApiError, Refused) as error:
        problems = by_field(error, frozenset({"limit"}))
        return await _show_source(request, caller, source, asked=asked, problems=problems, status=status_of(error))
    return back(request, f"/ingest/runs/{made.id}", f"A run of {made.source} is started.")


def _body(asked: dict[str, Any]) -> RunBody:
    try:
        return RunBody.model_validate(asked)
    except ValidationError as error:
        raise as_refusal(error) from None


async def cancel(request: Request, caller: Caller) -> Response:
    run = await _run(request, caller)
    reason = await field(request, "reason") or "from the dashboard"
    await runs.cancel(plane_of(request).core, run, actor=caller.actor, reason=reason)
    return back(request, f"/ingest/runs/{run.id}", "The run is being stopped.")


async def delete(request: Request, caller: Caller) -> Response:
    run = await _run(request, caller)
    await runs.delete(plane_of(request).core, run, actor=caller.actor)
    return back(request, f"/ingest/{run.source}", "The run was deleted; its files are removed in a moment.")


async def retry(request: Request, caller: Caller) -> Response:
    run, n = await _run(request, caller), _number(request)
    await runs.retry_batch(plane_of(request).core, run, n, actor=caller.actor)
    return back(request, f"/ingest/runs/{run.id}", f"Batch {n} goes through its hooks again.")


async def skip(request: Request, caller: Caller) -> Response:
    run, n = await _run(request, caller), _number(request)
    await runs.skip_batch(plane_of(request).core, run, n, actor=caller.actor, reason=await field(request, "reason"))
    return back(request, f"/ingest/runs/{run.id}", f"Batch {n} is skipped.")


async def _run(request: Request, caller: Caller) -> Run:
    return await visible_run(plane_of(request), caller, request.path_params["run_id"])


def _number(request: Request) -> int:
    text = request.path_params["n"]
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ApiError(404, "not_found", "There is no such batch.")
    return int(text)
