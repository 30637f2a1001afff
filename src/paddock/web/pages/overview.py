"""Is all well? How many jobs there are in each state, by kind; each number leads to its jobs. For operators, the last hour."""

from collections import Counter

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.tokens import Caller
from paddock.db.pool import Database
from paddock.jobs import reading
from paddock.jobs.charting import series
from paddock.jobs.model import STATUSES
from paddock.web.charting import Chart, Line
from paddock.web.frame import page, plane_of, render


def routes() -> list[Route]:
    return [page("/", show)]


async def charts(db: Database) -> list[Chart]:
    return [
        Chart("throughput", "Throughput", [Line("completed", "good", await series(db, "throughput"))]),
        Chart("backlog", "Backlog", [Line("due", "wait", await series(db, "backlog"))]),
    ]


async def show(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    counts = await reading.counts(db, caller.scope)
    by_status: Counter[str] = Counter()
    for of_kind in counts.by_kind.values():
        by_status.update(of_kind)
    return await render(
        request,
        caller,
        "overview.html",
        counts=counts,
        by_kind=sorted(counts.by_kind.items()),
        by_status=by_status,
        statuses=STATUSES,
        charts=await charts(db) if caller.operator else [],
    )
