"""Is all well? For operators: one sentence, then how the whole has been and where it stands, each number a link to what it
counts. For an analyst: their own newest work."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import OPERATORS, PEOPLE
from paddock.api.errors import ApiError, invalid_field
from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.jobs.figures import alarms
from paddock.jobs.figures.charting import Series
from paddock.jobs.figures.overviews import Counts, WorkerSeen
from paddock.jobs.figures.trends import RANGES, Range, Trend
from paddock.jobs.filtering import Filter
from paddock.jobs.model import STATUSES
from paddock.web import words
from paddock.web.charting import Chart, ChartLine, Mark, marks_of
from paddock.web.frame import back, field, form, page, plane_of, regions, render, templates
from paddock.web.glance import Glance, Glances, glances
from paddock.web.judging import Facts, judged, judged_own, spoken
from paddock.web.standing import standing_of

DEFAULT_RANGE = "1h"
OWN_NEWEST = 25
MOST_WORKERS, MOST_ERRORS = 12, 12
DRAWN_SECONDS = 3.0


def routes() -> list[Route]:
    return [page("/", show, PEOPLE), form("/dismiss", dismiss, OPERATORS)]


async def show(request: Request, caller: Caller) -> Response:
    if not caller.operator:
        return await show_own(request, caller)
    name = request.query_params.get("range") or DEFAULT_RANGE
    if name not in RANGES:
        raise ApiError(
            422, "invalid_range", f"There is no range '{name[:50]}'.", hint=f"Use one of {', '.join(RANGES)}."
        )
    asked = regions(request)
    seen = glances(request)
    values: dict[str, Any] = {"ranges": RANGES, "range": name, "asked": RANGES[name]}
    glance = await seen.now()
    if not asked or "summary" in asked:
        values |= await _summary(request, glance)
    if not asked or "charts" in asked:
        values |= await _charts(seen, glance, name)
    if not asked or "tables" in asked:
        values |= _tables(glance, await seen.errors(name))
    return await render(request, caller, "overview.html", **values)


async def dismiss(request: Request, caller: Caller) -> Response:
    try:
        up_to = datetime.fromisoformat(await field(request, "up_to"))
    except ValueError:
        raise invalid_field("up_to", "Send the time that the alarm was shown with.") from None
    if up_to.tzinfo is None:
        raise invalid_field("up_to", "Send the time with its zone.")
    await alarms.dismiss(plane_of(request).core, await field(request, "alarm"), up_to, actor=caller.actor)
    glances(request).forget()
    return back(request, "/", "The alarm is dismissed; it comes back when something new happens.")


async def _summary(request: Request, glance: Glance) -> dict[str, Any]:
    standing = await standing_of(request)
    facts = Facts(
        now=glance.now,
        kinds=glance.kinds,
        workers=glance.workers,
        beat=plane_of(request).core.settings.beat,
        errors=glance.errors,
        counted_to=glance.counted_to,
        drained=standing.drained,
        drained_at=standing.drained_at,
        retried_deliveries=glance.retried_deliveries,
        retried_since=glance.retried_since,
        hanging=glance.hanging,
        failed_schedules=glance.failed_schedules,
        dismissed=glance.dismissed,
    )
    clauses = [*judged(facts), *await glances(request).alarms()]
    return {
        "clauses": clauses,
        "spoken": spoken(clauses),
        "at_work": facts.at_work,
        "statuses": STATUSES,
        "by_status": _by_status(glance.counts),
        "sampled": glance.counts.sampled_at is not None,
    }


def _by_status(counts: Counts) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for of_kind in counts.by_kind.values():
        found.update(of_kind)
    return found


async def _charts(seen: Glances, glance: Glance, name: str) -> dict[str, Any]:
    return await seen.shared(f"charts {name}", partial(_drawn, seen, glance, name), DRAWN_SECONDS)


async def _drawn(seen: Glances, glance: Glance, name: str) -> dict[str, Any]:
    """The charts as they stand in the page: the same for everybody, for there is no link in them."""
    trend = await seen.trend(name)
    changes, versions = await seen.changes(name, trend.since), await seen.versions(name, trend.since)
    marks = marks_of(glance.workers, versions, changes, trend.since, trend.step)
    chart = cast(Any, templates().globals["ui"]).chart
    charts = charts_of(trend, RANGES[name], marks)
    return {
        "charts": [chart(one.id, one.title, one.data, one.rows, one.text, one.json) for one in charts],
        "marks": marks,
    }


def charts_of(trend: Trend, asked: Range, marks: Sequence[Mark]) -> list[Chart]:
    series = trend.series
    step = words.duration(trend.step)

    def lines(metric: str, tone: str) -> list[ChartLine]:
        return [
            ChartLine("p95", tone, series[f"{metric}_p95"], dashed=True),
            ChartLine("p50", tone, series[f"{metric}_p50"]),
        ]

    average, failed = _average(series["throughput"]), sum(_values(series["failures"]))
    return [
        Chart(
            "throughput",
            "Throughput",
            [ChartLine("completed", "good", series["throughput"], now=f"{words.number(average)} on average")],
            marks,
            "jobs/s",
            "No job completed in this time",
        ),
        Chart("backlog", "Backlog", [ChartLine("waiting", "wait", series["backlog"])], marks, "jobs", "Nothing waited"),
        Chart(
            "running",
            "Running",
            [ChartLine("running", "busy", series["running"])],
            marks,
            "jobs",
            "Nothing was seen running",
        ),
        Chart("wait", "Wait", lines("wait", "wait"), marks, "to start", "No job ended in this time"),
        Chart("duration", "Duration", lines("duration", "busy"), marks, "per job", "No job ended in this time"),
        Chart(
            "failures",
            "Failures",
            [ChartLine("failed", "bad", series["failures"], bars=True, now=f"{words.number(failed)} in {asked.name}")],
            marks,
            f"jobs per {step}",
            "No job failed in this time",
        ),
    ]


def _values(series: Series) -> list[float]:
    return [point.value for point in series.points if point.value is not None]


def _average(series: Series) -> float:
    known = _values(series)
    return sum(known) / len(known) if known else 0


def _tables(glance: Glance, errors: Sequence[Any]) -> dict[str, Any]:
    internal = {kind.name for kind in glance.kinds if kind.internal}
    workers = sorted((worker for worker in glance.workers if _is_listed(worker)), key=_order)
    live = [worker for worker in workers if worker.live and not internal.issuperset(worker.kinds)]
    return {
        "statuses": STATUSES,
        "by_kind": sorted(glance.counts.by_kind.items(), key=lambda found: (found[0] in internal, found[0])),
        "kinds": {kind.name: kind for kind in glance.kinds},
        "workers": workers[:MOST_WORKERS],
        "more_workers": len(workers) - MOST_WORKERS,
        "slots": sum(worker.slots for worker in live),
        "busy": sum(worker.running for worker in live),
        "errors": errors[:MOST_ERRORS],
        "more_errors": len(errors) - MOST_ERRORS,
    }


def _is_listed(worker: WorkerSeen) -> bool:
    """One that has ended as it should is of no more interest here."""
    return worker.live or not worker.dying


def _order(worker: WorkerSeen) -> tuple[bool, str, str]:
    """Those that are gone first; then by name, so that rows stay where they are."""
    return worker.live, worker.worker_id, str(worker.session)


async def show_own(request: Request, caller: Caller) -> Response:
    db = plane_of(request).core.db
    assert caller.scope is not None
    asked = regions(request)
    values: dict[str, Any] = {}
    if not asked or "rows" in asked:
        found = await reading.page(db, Filter(owner=caller.scope, include_cleanups=False), limit=OWN_NEWEST)
        values |= {"jobs": found.jobs, "more": found.next_cursor is not None}
    if not asked or "summary" in asked:
        counts = await reading.counts(db, caller.scope)
        clauses = judged_own(counts)
        values |= {"clauses": clauses, "spoken": spoken(clauses), "counts": counts}
        values |= {"statuses": STATUSES, "by_status": _by_status(counts)}
    return await render(request, caller, "overview_own.html", **values)
