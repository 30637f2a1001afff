"""The sessions of workers."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated
from uuid import UUID

from msgspec import Meta
from pydantic import BaseModel, ConfigDict
from starlette.responses import Response

from paddock.api.access import OPERATORS
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.errors import invalid_field, not_found
from paddock.api.guard import guarded_router
from paddock.api.ids import path_id
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page, read_cursor, write_cursor
from paddock.api.plane import ThePlane
from paddock.jobs import reading
from paddock.jobs.model import SessionId

router = guarded_router("workers", OPERATORS)

SESSION_ID = "0d0f5d0a-8a1c-4a55-b6a1-0f6d6f1a2b3c"
WORKER_EXAMPLE = {
    "session": SESSION_ID,
    "worker_id": "worker-1",
    "version": "0.1.0",
    "kinds": ["probe"],
    "slots": 10,
    "running": 2,
    "live": True,
    "quiet": False,
    "dying": False,
    "started_at": "2026-11-15T09:00:00Z",
    "beat_at": "2026-11-15T09:30:00Z",
    "expires_at": "2026-11-15T09:31:00Z",
}


Place = tuple[bool, Annotated[datetime, Meta(tz=True)], UUID]


class Quiet(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"quiet": True}]})

    quiet: bool = True


@router.get(
    "/api/workers",
    summary="Sessions: version, kinds, running jobs, last beat",
    responses=documented_page(WORKER_EXAMPLE),
)
async def list_workers(
    plane: ThePlane, caller: Asking, limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Response:
    found = await reading.workers(plane.core.db, after=None if cursor is None else _place(cursor), limit=limit)
    return page([asdict(worker) for worker in found], write_cursor(found[-1].place) if len(found) == limit else None)


def _place(cursor: str) -> Place:
    place: Place = read_cursor(cursor, Place)
    # Times near the ends of what Python holds would leave it on their way to UTC.
    if not 1970 <= place[1].year <= 9000:
        raise invalid_field("cursor", "Use `next_cursor` of the page before, unchanged.")
    return place


@router.post(
    "/api/workers/{session}/quiet",
    summary="Let a worker finish what it runs and claim nothing new",
    responses=documented({"session": SESSION_ID, "quiet": True}),
)
async def quiet_worker(session: str, plane: ThePlane, caller: Asking, body: Quiet | None = None) -> Response:
    id = SessionId(path_id(session, "session"))
    quiet = True if body is None else body.quiet
    if not await plane.core.quiet(id, actor=caller.actor, quiet=quiet):
        raise not_found("session")
    return answer({"session": id, "quiet": quiet})
