"""Finding what has a name.

A search looks through some thousand rows for each sort of thing, and people search while they type: so that no caller's
searches fill the connections that all share, a token has two of them at once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented_page
from paddock.api.errors import ApiError
from paddock.api.finding import Found, Sought, find
from paddock.api.guard import guarded_router
from paddock.api.job_json import EXAMPLE_ID
from paddock.api.pagination import page
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.tokens import Caller

AT_ONCE = 2
RETRY_AFTER_SECONDS = 1

router = guarded_router("search", PEOPLE)

FOUND_EXAMPLE = {
    "what": "snapshot",
    "id": "019a8b1e-4c10-7000-9d2c-6a1b2c3d4e5f",
    "name": "Routes, 15 November",
    "path": "/snapshots/019a8b1e-4c10-7000-9d2c-6a1b2c3d4e5f",
    "note": "ready",
    "job_id": EXAMPLE_ID,
}


@router.get(
    "/api/search",
    summary="What has this in its name, or an id that begins so",
    responses=documented_page(FOUND_EXAMPLE),
)
async def search(
    plane: ThePlane,
    caller: Asking,
    q: Annotated[str, Query(min_length=1, max_length=200, description="A part of a name, or the beginning of an id.")],
    exactly: Annotated[
        bool, Query(description="The whole name; then each comes with the job that tells most of it.")
    ] = False,
    limit: Annotated[int, Query(ge=1, le=50)] = 10,
) -> Response:
    text = q.replace("\0", "").strip()
    with _counted(plane, caller):
        found = await find(plane, caller, Sought(text, limit, exactly)) if text else []
    return page([_json(one) for one in found], None)


@contextmanager
def _counted(plane: ControlPlane, caller: Caller) -> Iterator[None]:
    if plane.searches[caller.token_id] >= AT_ONCE:
        raise ApiError(
            429,
            "too_many_searches",
            f"{AT_ONCE} searches of this token are not answered yet.",
            hint="Wait until one is.",
            headers={"Retry-After": str(RETRY_AFTER_SECONDS)},
        )
    plane.searches[caller.token_id] += 1
    try:
        yield
    finally:
        plane.searches[caller.token_id] -= 1
        if not plane.searches[caller.token_id]:
            del plane.searches[caller.token_id]


def _json(found: Found) -> dict[str, object]:
    return {
        "what": found.what,
        "id": found.id,
        "name": found.name,
        "path": found.path,
        "note": found.note,
        "job_id": found.job,
    }
