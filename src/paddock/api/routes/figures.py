"""Series for charts, and who changed what."""

from typing import Annotated

from fastapi import Query
from pydantic import AwareDatetime
from starlette.responses import Response

from paddock.api import auditing
from paddock.api.access import OPERATORS
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso, parse
from paddock.api.guard import guarded_router
from paddock.api.job_json import EXAMPLE_ID
from paddock.api.keyset import next_cursor, read_place
from paddock.api.pagination import DEFAULT_LIMIT, Cursor, Limit, answer, page
from paddock.api.plane import ThePlane
from paddock.jobs.figures import charting

router = guarded_router("figures", OPERATORS)

AUDIT_EXAMPLE = {
    "id": "019a8b1e-4c30-7000-8b20-1c2d3e4f5061",
    "at": "2026-11-15T09:31:00Z",
    "actor": "grace",
    "action": "cancel",
    "subject": f"job:{EXAMPLE_ID}",
    "reason": "wrong table",
    "details": {},
}

Text = Annotated[str | None, Query(min_length=1, max_length=500)]


@router.get(
    "/api/stats",
    summary="A series for a chart",
    responses=documented(
        {
            "metric": "throughput",
            "kind": None,
            "unit": "jobs/s",
            "width": "PT10S",
            "points": [{"at": "2026-11-15T09:30:00Z", "value": 12.5}],
            "codes": [],
        }
    ),
)
async def get_stats(
    plane: ThePlane,
    caller: Asking,
    metric: Annotated[str, Query(max_length=100, description=f"One of {', '.join(charting.METRICS)}.")] = "throughput",
    kind: Annotated[str | None, Query(max_length=200)] = None,
    within: Annotated[
        str,
        Query(alias="range", max_length=50, examples=["1h", "P1D"], description="One minute to seven days."),
    ] = "1h",
) -> Response:
    found = await charting.series(plane.core.db, metric, kind, parse(within, "range"))
    return answer(
        {
            "metric": found.metric,
            "kind": found.kind,
            "unit": found.unit,
            "width": iso(found.width),
            "points": found.points,
            "codes": found.codes,
        }
    )


@router.get("/api/audit", summary="Who changed what, newest first", responses=documented_page(AUDIT_EXAMPLE))
async def list_audit(
    plane: ThePlane,
    caller: Asking,
    subject: Text = None,
    action: Text = None,
    actor: Text = None,
    since: AwareDatetime | None = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Response:
    found = await auditing.page(
        plane.core.db,
        before=read_place(cursor),
        since=since,
        subject=subject,
        action=action,
        actor=actor,
        limit=limit,
    )
    return page(found, next_cursor(found, limit))
