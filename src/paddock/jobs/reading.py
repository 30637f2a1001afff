"""Reading jobs: single ones, and pages over live and ended jobs together, newest first.

A page promises that its keyset walk misses and doubles no job, though jobs end between pages: ids never change,
are time-ordered, and each step reads both tables in one snapshot. It does not promise to be full: after its time budget
it stops and says how far back it has looked. Memory is bounded: a page stops at `PAGE_BYTES` too.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import asyncpg
import orjson

from paddock.db.pool import Database
from paddock.jobs.figures.overviews import Counts, KindSeen, WorkerSeen, counts, kinds, workers
from paddock.jobs.filtering import Filter, read_cursor, time_of, write_cursor
from paddock.jobs.model import Job, JobId
from paddock.jobs.reports import final_report
from paddock.jobs.scanning import SQL, Scan, briefs_by_id, jobs_by_id
from paddock.jobs.timelines import Related, Relative, related, timeline_of

BUDGET = timedelta(milliseconds=40)
PAGE_BYTES = 8 * 1024 * 1024
ROWS_AT_ONCE = 250
# Most pages are full after the first; where that was not enough, each is longer than the one before.
FIRST_STEP, NEXT_STEP, COUNTING_STEP = 125, 2_000, 10_000


@dataclass(frozen=True, slots=True)
class Page:
    """`searched_back_to` is set when the page is short of time, not of jobs: go on with `next_cursor`."""

    jobs: Sequence[Job]
    next_cursor: str | None
    searched_back_to: datetime | None


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a job stands: the little that most who watch many want to know."""

    id: JobId
    owner: str
    kind: str
    status: str
    group_id: UUID | None


@dataclass(frozen=True, slots=True)
class Ids:
    """The next matches, oldest first. `after` is where to go on; None when nothing is left."""

    ids: Sequence[JobId]
    after: JobId | None


@dataclass(frozen=True, slots=True)
class Count:
    """`more`: at least `n`; there are more than were asked for, or there was no time to look at all of them."""

    n: int
    more: bool


async def job(db: Database, job_id: JobId) -> Job | None:
    found = await jobs(db, [job_id])
    return found[0] if found else None


async def jobs(db: Database, ids: Sequence[JobId]) -> list[Job]:
    """Those that exist, in the order asked for."""
    rows = await db.fetch(jobs_by_id(), ids)
    found = {row["id"]: job_of(row) for row in rows}
    return [found[job_id] for job_id in ids if job_id in found]


async def briefs(db: Database, ids: Sequence[JobId]) -> list[Job]:
    """Like `jobs`, for lists: payload, saved state, result and errors, which may be large, are left out as if empty."""
    rows = await db.fetch(briefs_by_id(), ids)
    # What was read of a result is in the report by now.
    found = {row["id"]: replace(job_of(row), result=None) for row in rows}
    return [found[job_id] for job_id in ids if job_id in found]


async def placed(db: Database, ids: Sequence[JobId]) -> list[Placed]:
    return [Placed(*row) for row in await db.fetch(SQL["placed"], ids)]


async def placed_of(
    db: Database, ids: Sequence[JobId], *, owners: Sequence[str], kinds: Sequence[str], groups: Sequence[UUID]
) -> list[Placed]:
    """Those of the jobs that are of one of the owners, kinds or groups."""
    return [Placed(*row) for row in await db.fetch(SQL["placed_of"], ids, owners, kinds, groups)]


async def page(
    db: Database,
    asked: Filter,
    *,
    limit: int = 100,
    cursor: str | None = None,
    budget: timedelta = BUDGET,
    monotonic: Callable[[], float] = time.monotonic,
) -> Page:
    deadline = monotonic() + budget.total_seconds()
    scan = await Scan.start(db, asked.checked(), before=None if cursor is None else read_cursor(cursor))
    found: list[Job] = []
    size, step = 0, FIRST_STEP
    while True:
        # One more than asked for tells whether there is a next page.
        taken = await scan.step("DESC", step, "whole_rows", want=min(limit + 1 - len(found), ROWS_AT_ONCE))
        for row in taken.rows:
            if len(found) == limit or (found and size > PAGE_BYTES):
                return Page(found, write_cursor(found[-1].id), None)
            found.append(job_of(row))
            size += _weight(row)
        if taken.ended:
            return Page(found, None, None)
        if monotonic() >= deadline:
            assert taken.edge is not None
            return Page(found, write_cursor(taken.edge), time_of(taken.edge))
        step = min(4 * step, NEXT_STEP)


async def count(
    db: Database,
    asked: Filter,
    *,
    at_most: int = 10_000,
    budget: timedelta = timedelta(seconds=1),
    monotonic: Callable[[], float] = time.monotonic,
) -> Count:
    """Exact up to `at_most`, as far as the time budget reaches: a rare match among millions is not looked for longer."""
    deadline = monotonic() + budget.total_seconds()
    scan = await Scan.start(db, asked.checked())
    n = 0
    while True:
        taken = await scan.step("DESC", COUNTING_STEP, "only_count", want=at_most + 1)
        n += sum(int(row["n"]) for row in taken.rows)
        if n > at_most:
            return Count(at_most, more=True)
        if taken.ended:
            return Count(n, more=False)
        if monotonic() >= deadline:
            return Count(n, more=True)


async def ids(db: Database, asked: Filter, *, after: JobId | None = None, limit: int = 200) -> Ids:
    """Oldest first, for work that goes through all matches: give it a filter with `until`, or it chases new jobs."""
    scan = await Scan.start(db, asked.checked(), after=after)
    found: list[JobId] = []
    while True:
        taken = await scan.step("ASC", NEXT_STEP, "only_ids", want=limit - len(found))
        found.extend(JobId(row["id"]) for row in taken.rows)
        if taken.ended:
            return Ids(found, None)
        if len(found) >= limit:
            return Ids(found, found[-1])


async def newer(
    db: Database,
    asked: Filter,
    *,
    after: JobId | None,
    limit: int = 100,
    budget: timedelta = BUDGET,
    monotonic: Callable[[], float] = time.monotonic,
) -> list[JobId]:
    """The matches made after a job, newest first: what a page that is open does not show yet. At most `limit`, and
    after the time budget those found so far."""
    deadline = monotonic() + budget.total_seconds()
    scan = await Scan.start(db, asked.checked(), after=after)
    found: list[JobId] = []
    while True:
        taken = await scan.step("DESC", NEXT_STEP, "only_ids", want=limit - len(found))
        found.extend(JobId(row["id"]) for row in taken.rows)
        if taken.ended or len(found) >= limit or monotonic() >= deadline:
            return found


async def clock(db: Database) -> datetime:
    """The one clock of the system."""
    now: datetime = await db.fetchval(SQL["clock"])
    return now


async def timeline(db: Database, job_id: JobId) -> list[dict[str, Any]]:
    """Oldest first, each {at, event, from, to, attempt_id, worker, actor, reason, claimed_at, error, count, until}.
    Empty when there is no such job."""
    found = await job(db, job_id)
    return [] if found is None else [entry.to_json() for entry in await timeline_of(db, found)]


def job_of(row: asyncpg.Record) -> Job:
    report, result = _json(row["report"]), _json(row["result"])
    return Job(
        id=row["id"],
        kind=row["kind"],
        status=row["status"],
        priority=row["priority"],
        owner=row["owner"],
        role=row["role"],
        tags=row["tags"],
        payload=orjson.loads(row["payload"]),
        saved=_json(row["saved"]),
        report=final_report(report, result) if row["status"] == "completed" else report,
        result=result,
        error_code=row["error_code"],
        error_message=row["error_message"],
        errors=_json(row["errors"]) or [],
        due_at=row["due_at"],
        visible_at=row["visible_at"],
        attempt_id=row["attempt_id"],
        ended_by=row["ended_by"],
        session_id=row["session_id"],
        claimed_by=row["claimed_by"],
        claimed_at=row["claimed_at"],
        turn_count=row["turn_count"],
        failure_count=row["failure_count"],
        cluster_count=row["cluster_count"],
        lost_count=row["lost_count"],
        waiting_on=row["waiting_on"],
        lock_key=row["lock_key"],
        group_id=row["group_id"],
        retry_of=row["retry_of"],
        retried_by=row["retried_by"],
        cleanup_of=row["cleanup_of"],
        schedule=row["schedule"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        submitted_at=row["submitted_at"],
        completed_at=row["completed_at"],
        run_seconds=row["run_seconds"],
        wait_seconds=row["wait_seconds"],
        about=row["about"],
    )


def _json(text: str | None) -> Any:
    return None if text is None else orjson.loads(text)


def _weight(row: asyncpg.Record) -> int:
    return sum(len(row[name] or "") for name in ("payload", "saved", "report", "result", "errors"))


__all__ = [
    "Count",
    "Counts",
    "Filter",
    "Ids",
    "KindSeen",
    "Page",
    "Related",
    "Relative",
    "WorkerSeen",
    "clock",
    "count",
    "counts",
    "ids",
    "job",
    "job_of",
    "jobs",
    "kinds",
    "newer",
    "page",
    "related",
    "timeline",
    "timeline_of",
    "workers",
]
