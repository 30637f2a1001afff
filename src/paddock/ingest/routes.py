"""`/api/ingest`: sources, their runs and batches, and what was published."""

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, StringConstraints
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.errors import invalid_field
from paddock.api.guard import guarded_router
from paddock.api.idempotency import KeyHeader, key_of
from paddock.api.ids import optional_id
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, read_cursor, split, write_cursor
from paddock.api.plane import ThePlane
from paddock.ingest import downloading, runs
from paddock.ingest.answering import batch_json, batch_with_steps, file_json, run_json, source_json
from paddock.ingest.model import BATCH_STATUSES, RUN_STATUSES
from paddock.ingest.service import (
    RunBody,
    prepare_run,
    sources_seen,
    visible_batch,
    visible_file,
    visible_run,
    visible_source,
    visible_sources,
)

router = guarded_router("ingest", PEOPLE)

RUN_ID = "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7"
FILE_ID = "019a8b1e-4c49-7000-9d6e-6f1d3c0a51e7"
RUN_EXAMPLE: dict[str, Any] = {
    "id": RUN_ID,
    "source": "orders",
    "owner": "ada",
    "status": "completed",
    "request": {"from": "last", "batch_size": 1_000, "limit": None},
    "batches": {"published": 3},
    "records": 2_412,
    "passed": 2_400,
    "rejected": 12,
    "errors": 0,
    "duplicates": 0,
    "next_batch": 3,
    "runtime": "local",
    "fetched": 2_412,
    "fetching": None,
    "waiting_bytes": 0,
    "held_since": None,
    "failed_batches": 0,
    "error": None,
    "group_id": "019a8b1e-4c40-7000-8a10-0b1c2d3e4f50",
    "created_at": "2026-11-16T09:30:00Z",
    "ended_at": "2026-11-16T09:30:07Z",
    "links": {"self": f"/api/ingest/runs/{RUN_ID}"},
}
SOURCE_EXAMPLE: dict[str, Any] = {
    "name": "orders",
    "description": "",
    "protocol": "files",
    "hooks": ["validate"],
    "batch_size": 1_000,
    "max_failed_batches": 10,
    "columns": {"amount": "DECIMAL(12, 2)"},
    "timeout": "PT3600S",
    "memory": 4_294_967_296,
    "owners": [],
    "committed_session": {"after": 2_412},
    "last_run": RUN_EXAMPLE,
    "totals": {"files": 3, "rows": 2_400, "bytes": 48_576, "published_at": "2026-11-16T09:30:06Z"},
}
BATCH_EXAMPLE: dict[str, Any] = {
    "run_id": RUN_ID,
    "n": 0,
    "status": "published",
    "records": 1_000,
    "duplicates": 0,
    "bytes": 180_000,
    "fetched_at": "2026-11-16T09:30:01Z",
    "hooks": [{"hook": "validate", "passed": 996, "rejected": 4, "errors": 0}],
    "passed": 996,
    "rejected": 4,
    "errors": 0,
    "file_id": FILE_ID,
    "job_id": "019a8b1e-4c41-7001-8f6e-2f9d3c0a51e7",
    "error": None,
    "ended_at": "2026-11-16T09:30:03Z",
}
BATCH_WITH_STEPS: dict[str, Any] = {
    **BATCH_EXAMPLE,
    "steps": [
        {"step": step, "job_id": f"019a8b1e-4c4{n}-7001-8f6e-2f9d3c0a51e7", "status": "completed", "error_code": None}
        for n, step in enumerate(("fetch", "hooks", "publish"))
    ],
}
FILE_EXAMPLE: dict[str, Any] = {
    "id": FILE_ID,
    "source": "orders",
    "run_id": RUN_ID,
    "batch": 0,
    "rows": 996,
    "rejected": 4,
    "bytes": 16_192,
    "published_at": "2026-11-16T09:30:03Z",
    "path": "/srv/objects/ingest/orders/…/records.parquet",
    "links": {"download": f"/api/ingest/files/{FILE_ID}/download"},
}
REJECTED_EXAMPLE: dict[str, Any] = {
    "position": 3,
    "stream": "",
    "id": "17",
    "data": {"amount": -1},
    "hook": "validate",
    "outcome": "rejected",
    "reason": "amount is negative",
}

BatchNumber = Annotated[int, Path(ge=0, le=2**31 - 1)]


class ReasonBody(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"reason": "wrong source"}]})

    reason: Annotated[str, StringConstraints(max_length=500)] | None = None


def _reason(body: ReasonBody | None) -> str | None:
    return None if body is None else body.reason


def _statuses(asked: list[str] | None, there: Sequence[str]) -> Sequence[str] | None:
    words = split(asked)
    if words is not None and not set(words) <= set(there):
        raise invalid_field("status", f"There are {', '.join(there)}.")
    return words


@router.get("/api/ingest/sources", summary="Sources", responses=documented_page(SOURCE_EXAMPLE))
async def list_sources(plane: ThePlane, caller: Asking) -> Response:
    found = visible_sources(plane, caller)
    return page([await source_json(plane, name, source) for name, source in sorted(found.items())], None)


@router.get("/api/ingest/sources/{source}", summary="One source", responses=documented(SOURCE_EXAMPLE))
async def get_source(source: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await source_json(plane, source, visible_source(plane, caller, source)))


@router.get(
    "/api/ingest/sources/{source}/files",
    summary="Published files of a source, in their order",
    responses=documented_page(FILE_EXAMPLE),
)
async def list_files(
    source: str,
    plane: ThePlane,
    caller: Asking,
    after: Annotated[str | None, Query(max_length=100, description="Only those published after this file.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    visible_source(plane, caller, source)
    place = read_place(cursor) or optional_id(after, "after")
    found = await runs.files(plane.core.db, source, after=place, limit=limit)
    shown = [file_json(plane, one) for one in found]
    return page(shown, next_cursor(shown, limit))


@router.get(
    "/api/ingest/files/{file_id}/download",
    summary="A published file",
    responses={
        **documented({}),
        200: {"content": {downloading.PARQUET: {"example": "PAR1…"}}, "description": "Parquet; ranges are served."},
    },
    response_class=Response,
)
async def download_file(
    request: Request,
    file_id: str,
    plane: ThePlane,
    caller: Asking,
    part: Annotated[downloading.Part, Query(description="Its records, or those that were rejected.")] = "records",
) -> Response:
    found = await visible_file(plane, caller, file_id)
    headers = request.headers
    asked, if_range = headers.get("range"), headers.get("if-range")
    return await downloading.download(plane.config, found, part, asked, if_range, head=request.method == "HEAD")


router.head("/api/ingest/files/{file_id}/download", include_in_schema=False)(download_file)


@router.post(
    "/api/ingest/runs",
    status_code=201,
    summary="Start a run of a source",
    responses=documented(RUN_EXAMPLE, status=201, description="Started; `Location` is the run."),
)
async def start_run(
    request: Request, body: RunBody, plane: ThePlane, caller: Asking, key: KeyHeader = None
) -> Response:
    new = prepare_run(plane, caller, body)
    idempotency = key_of(caller, "POST /api/ingest/runs", key, await request.json())
    made = await runs.start(plane.core, new, actor=caller.actor, idempotency=idempotency)
    return answer(await run_json(plane, made), 201, {"Location": f"/api/ingest/runs/{made.id}"})


@router.get("/api/ingest/runs", summary="Runs, newest first", responses=documented_page(RUN_EXAMPLE))
async def list_runs(
    plane: ThePlane,
    caller: Asking,
    source: Annotated[str | None, Query(max_length=100)] = None,
    status: Annotated[list[str] | None, Query(max_length=20, description="One or several.")] = None,
    owner: Annotated[str | None, Query(min_length=1, max_length=500)] = None,
    q: Annotated[
        str | None, Query(min_length=1, max_length=500, description="A part of the source's name or of the error.")
    ] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    found = await runs.page(
        plane.core.db,
        sources_seen(plane, caller, source),
        statuses=_statuses(status, RUN_STATUSES),
        owner=owner,
        text=None if q is None else q.replace("\0", ""),
        before=read_place(cursor),
        limit=limit,
    )
    shown = [await run_json(plane, one) for one in found]
    return page(shown, next_cursor(shown, limit))


@router.get("/api/ingest/runs/{run_id}", summary="One run", responses=documented(RUN_EXAMPLE))
async def get_run(run_id: str, plane: ThePlane, caller: Asking) -> Response:
    return answer(await run_json(plane, await visible_run(plane, caller, run_id)))


@router.post(
    "/api/ingest/runs/{run_id}/cancel",
    summary="Cancel what is left of a run",
    responses=documented({**RUN_EXAMPLE, "status": "stopping"}),
)
async def cancel_run(run_id: str, plane: ThePlane, caller: Asking, body: ReasonBody | None = None) -> Response:
    found = await visible_run(plane, caller, run_id)
    return answer(await run_json(plane, await runs.cancel(plane.core, found, actor=caller.actor, reason=_reason(body))))


@router.delete(
    "/api/ingest/runs/{run_id}",
    status_code=202,
    summary="Delete an ended run and its files",
    responses=documented(
        {**RUN_EXAMPLE, "status": "deleting"}, status=202, description="Its files go, then it is gone."
    ),
)
async def delete_run(run_id: str, plane: ThePlane, caller: Asking) -> Response:
    found = await visible_run(plane, caller, run_id)
    await runs.delete(plane.core, found, actor=caller.actor)
    return answer(await run_json(plane, await runs.get(plane.core.db, found.id) or found), 202)


@router.get(
    "/api/ingest/runs/{run_id}/batches",
    summary="Batches of a run, in their order",
    responses=documented_page(BATCH_EXAMPLE),
)
async def list_batches(
    run_id: str,
    plane: ThePlane,
    caller: Asking,
    status: Annotated[list[str] | None, Query(max_length=20, description="One or several.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    run = await visible_run(plane, caller, run_id)
    after: int = -1 if cursor is None else read_cursor(cursor, int)
    found = await runs.batches(plane.core.db, run, statuses=_statuses(status, BATCH_STATUSES), after=after, limit=limit)
    last = write_cursor(found[-1].n) if len(found) == limit else None
    return page([batch_json(one) for one in found], last)


@router.get(
    "/api/ingest/runs/{run_id}/batches/{n}", summary="One batch, with its steps", responses=documented(BATCH_WITH_STEPS)
)
async def get_batch(run_id: str, n: BatchNumber, plane: ThePlane, caller: Asking) -> Response:
    run = await visible_run(plane, caller, run_id)
    return answer(await batch_with_steps(plane, run, await visible_batch(plane, run, n)))


@router.post(
    "/api/ingest/runs/{run_id}/batches/{n}/retry",
    status_code=202,
    summary="Send a failed batch through its hooks again",
    responses=documented({**BATCH_EXAMPLE, "status": "fetched"}, status=202, description="Begun again."),
)
async def retry_batch(run_id: str, n: BatchNumber, plane: ThePlane, caller: Asking) -> Response:
    run = await visible_run(plane, caller, run_id)
    return answer(batch_json(await runs.retry_batch(plane.core, run, n, actor=caller.actor)), 202)


@router.post(
    "/api/ingest/runs/{run_id}/batches/{n}/skip",
    summary="Give a failed batch up",
    responses=documented({**BATCH_EXAMPLE, "status": "skipped"}),
)
async def skip_batch(
    run_id: str, n: BatchNumber, plane: ThePlane, caller: Asking, body: ReasonBody | None = None
) -> Response:
    run = await visible_run(plane, caller, run_id)
    return answer(batch_json(await runs.skip_batch(plane.core, run, n, actor=caller.actor, reason=_reason(body))))


@router.get(
    "/api/ingest/runs/{run_id}/batches/{n}/rejected",
    summary="The first rejected records of a batch, with why",
    responses=documented_page(REJECTED_EXAMPLE),
)
async def list_rejected(run_id: str, n: BatchNumber, plane: ThePlane, caller: Asking) -> Response:
    run = await visible_run(plane, caller, run_id)
    batch = await visible_batch(plane, run, n)
    file = None if batch.file_id is None else await runs.file(plane.core.db, batch.file_id)
    return page([] if file is None else await downloading.rejected(plane.config, file), None)
