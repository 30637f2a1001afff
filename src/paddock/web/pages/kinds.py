"""The kinds of jobs: how each fares, who offers it, its policy in words, and the switch that holds one back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.amounts import listed
from paddock.api import auditing
from paddock.api.access import OPERATORS, PEOPLE
from paddock.api.errors import not_found
from paddock.api.kinds_seen import may_see_kind
from paddock.api.tokens import Caller
from paddock.db.pool import Database
from paddock.jobs import reading
from paddock.jobs.figures import charting, last_hour
from paddock.jobs.figures.last_hour import EndCounts
from paddock.jobs.figures.overviews import KindSeen, WorkerSeen
from paddock.jobs.figures.trends import error_groups
from paddock.jobs.filtering import Filter
from paddock.web import words
from paddock.web.charting import Chart, ChartLine, Mark
from paddock.web.frame import back, field, form, page, plane_of, regions, render
from paddock.web.glance import glances
from paddock.web.job_actions import may_submit
from paddock.web.policy import in_short, policy_of

RANGES: Mapping[str, timedelta] = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
MOST_FAILURES = 10
MOST_CHANGES = 20
# What an analyst sees of a kind beside its policy and its state.
NOTHING: Mapping[str, Any] = {
    "charts": (), "codes": (), "failed": (), "changes": (), "ended": EndCounts(), "workers": ()
}  # fmt: skip


def routes() -> list[Route]:
    return [
        page("/kinds", show, PEOPLE),
        page("/kinds/{kind}", show_one, PEOPLE),
        form("/kinds/{kind}/pause", pause, OPERATORS),
        form("/kinds/{kind}/resume", resume, OPERATORS),
    ]


@dataclass(frozen=True, slots=True)
class Row:
    """A kind with what is known of it. `workers` are the live ones that offer it; analysts are not told of those."""

    seen: KindSeen
    short: str
    ended: EndCounts
    workers: Sequence[WorkerSeen]
    code: str | None

    @property
    def waits_in_vain(self) -> bool:
        return self.seen.unoffered and not self.seen.paused


async def show(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    seen = [kind for kind in await reading.kinds(db) if _may_see(request, caller, kind)]
    ended, codes, workers = await _figures(db) if caller.operator else ({}, {}, [])
    rows = [
        Row(kind, in_short(kind), ended.get(kind.name, EndCounts()), _offering(workers, kind), codes.get(kind.name))
        for kind in seen
    ]
    return await render(
        request,
        caller,
        "kinds.html",
        kinds=[row for row in rows if not row.seen.internal],
        own=[row for row in rows if row.seen.internal],
        summary=_summary([row for row in rows if not row.seen.housekeeping]) if caller.operator else None,
    )


async def show_one(request: Request, caller: Caller) -> Response:
    core = plane_of(request).core
    kind = await _kind(request, caller)
    asked = request.query_params.get("range", "1h")
    within = asked if asked in RANGES else "1h"
    values = await _operating(request, kind, within) if caller.operator else NOTHING
    return await render(
        request,
        caller,
        "kind.html",
        kind=kind,
        policy=policy_of(kind, core.kinds.get(kind.name)),
        submits=may_submit(core.kinds.get(kind.name), caller),
        within=within,
        ranges=list(RANGES),
        **values,
    )


async def pause(request: Request, caller: Caller) -> Response:
    kind = request.path_params["kind"]
    await plane_of(request).core.pause(kind, actor=caller.actor, reason=await field(request, "reason") or None)
    return back(request, await _from(request), f"{kind} is paused: nothing new of it is claimed.")


async def resume(request: Request, caller: Caller) -> Response:
    kind = request.path_params["kind"]
    await plane_of(request).core.resume(kind, actor=caller.actor, reason=await field(request, "reason") or None)
    return back(request, await _from(request), f"{kind} is claimed again.")


async def _from(request: Request) -> str:
    """Back to the list or to the kind's own page."""
    return f"/kinds/{request.path_params['kind']}" if await field(request, "from") == "kind" else "/kinds"


async def _kind(request: Request, caller: Caller) -> KindSeen:
    name = request.path_params["kind"]
    for kind in await reading.kinds(plane_of(request).core.db):
        if kind.name == name and _may_see(request, caller, kind):
            return kind
    raise not_found("kind")


def _may_see(request: Request, caller: Caller, kind: KindSeen) -> bool:
    return caller.operator or (not kind.internal and may_see_kind(plane_of(request).config, caller, kind.name))


async def _figures(db: Database) -> tuple[dict[str, EndCounts], dict[str, str], list[WorkerSeen]]:
    codes: dict[str, str] = {}
    for found in await error_groups(db, timedelta(hours=1)):
        codes.setdefault(found.kind, found.code)
    return await last_hour.ended_by_kind(db), codes, await reading.workers(db)


async def _operating(request: Request, kind: KindSeen, within: str) -> Mapping[str, Any]:
    """What only operators see: it tells of everybody's work. Only what the regions asked for show is read."""
    db, asked = plane_of(request).core.db, regions(request)
    values = dict(NOTHING)
    if not asked or "now" in asked:
        values["workers"] = _offering(await reading.workers(db), kind)
    if not asked or "figures" in asked:
        values |= await _drawn(request, kind, RANGES[within])
    if not asked or "kind_failures" in asked:
        failed = await reading.page(db, Filter(kind=kind.name, status="failed"), limit=MOST_FAILURES)
        codes = [found for found in await error_groups(db, RANGES[within]) if found.kind == kind.name]
        values |= {"codes": codes, "failed": failed.jobs}
    return values


async def _drawn(request: Request, kind: KindSeen, length: timedelta) -> dict[str, Any]:
    db = plane_of(request).core.db
    changes = await auditing.page(
        db, before=None, since=None, subject=f"kind:{kind.name}", action=None, actor=None, limit=MOST_CHANGES
    )
    marks = [Mark(found["at"], f"{found['action']} by {found['actor']}") for found in changes]
    return {
        "charts": [] if kind.housekeeping else await _charts(request, kind.name, length, marks),
        "changes": changes,
        "ended": (await last_hour.ended_by_kind(db)).get(kind.name, EndCounts()),
    }


async def _charts(request: Request, kind: str, length: timedelta, marks: Sequence[Mark]) -> list[Chart]:
    db, seen = plane_of(request).core.db, glances(request)

    async def line(metric: str, name: str, tone: str, *, dashed: bool = False) -> ChartLine:
        read = partial(charting.series, db, metric, kind, length)
        return ChartLine(name, tone, await seen.shared(f"series {metric} {kind} {length}", read), dashed)

    return [
        Chart("throughput", "Completed", [await line("throughput", "completed", "good")], marks),
        Chart("failures", "Failed", [await line("failures", "failed", "bad")], marks),
        Chart("backlog", "Queue", [await line("backlog", "waiting", "wait"), await line("running", "running", "busy")], marks),
        Chart("oldest", "Oldest due", [await line("oldest_due", "waits", "wait")], marks),
        Chart("wait", "Wait", [await line("wait_p50", "p50", "busy"), await line("wait_p95", "p95", "wait", dashed=True)], marks),
        Chart("duration", "Run time", [await line("duration_p50", "p50", "busy"), await line("duration_p95", "p95", "wait", dashed=True)], marks),
    ]  # fmt: skip


def _offering(workers: Sequence[WorkerSeen], kind: KindSeen) -> list[WorkerSeen]:
    found = [worker for worker in workers if worker.live and not worker.dying and kind.name in worker.kinds]
    return sorted(found, key=lambda worker: (worker.worker_id, worker.started_at))


def _summary(rows: Sequence[Row]) -> str:
    """What is wrong, in one line."""
    paused = [row.seen.name for row in rows if row.seen.paused]
    vain = [row.seen.name for row in rows if row.waits_in_vain]
    failing = [row.seen.name for row in rows if row.ended.failed]
    parts = [
        f"Paused: {listed(paused)}." if paused else "",
        f"No live worker offers {listed(vain, 'or')}." if vain else "",
        f"{words.plural(len(failing), 'kind has', 'kinds have')} failures in the last hour." if failing else "",
    ]
    text = " ".join(part for part in parts if part)
    return text or "Every kind is offered, none is paused, none failed in the last hour."
