"""The list of jobs as a file: what its filters match, in its columns, newest first, up to a bound, written as it is read."""

import csv
import io
import time
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.pagination import encode
from paddock.api.tokens import Caller
from paddock.db.pool import Database
from paddock.jobs import reading
from paddock.jobs.filtering import Filter
from paddock.jobs.model import Job
from paddock.web import job_columns, job_filters
from paddock.web.frame import page, plane_of
from paddock.web.job_columns import JobColumn
from paddock.web.words import machine

MOST_JOBS = 10_000
LONGEST_SECONDS = 30.0
JOBS_AT_ONCE = 500
# What a spreadsheet takes for the beginning of a formula, or strips to find one. The wide forms count as the others.
FORMULA_BEGINS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")

Write = Callable[[AsyncIterator[tuple[Sequence[Job], bool]], Sequence[JobColumn]], AsyncIterator[bytes]]


def routes() -> list[Route]:
    return [page("/jobs.csv", as_csv, PEOPLE), page("/jobs.json", as_json, PEOPLE)]


async def as_csv(request: Request, caller: Caller) -> Response:
    return _file(request, caller, "csv", "text/csv; charset=utf-8", write_csv)


async def as_json(request: Request, caller: Caller) -> Response:
    return _file(request, caller, "json", "application/json", write_json)


def _file(request: Request, caller: Caller, ending: str, media_type: str, write: Write) -> Response:
    now = datetime.now(UTC)
    asked = job_filters.read(request.query_params.multi_items(), caller, now)
    if asked.filter is None:
        raise ApiError(422, "invalid_filter", " ".join(asked.problems.values()))
    found = _matching(plane_of(request).core.db, asked.filter)
    name = f"paddock-jobs-{now:%Y-%m-%dT%H%M%SZ}.{ending}"
    headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-store"}
    return StreamingResponse(write(found, job_columns.chosen(request, caller)), headers=headers, media_type=media_type)


async def _matching(db: Database, asked: Filter) -> AsyncIterator[tuple[Sequence[Job], bool]]:
    """Pages, each with whether something comes after it. No connection is held between two: a reader may be slow."""
    cursor, left = None, MOST_JOBS
    # A filter that hardly anything matches walks far: not for ever, and what was found is said to be incomplete.
    until = time.monotonic() + LONGEST_SECONDS
    while left > 0 and time.monotonic() < until:
        found = await reading.page(db, asked, limit=min(JOBS_AT_ONCE, left), cursor=cursor)
        left -= len(found.jobs)
        cursor = found.next_cursor
        yield found.jobs, cursor is not None
        if cursor is None:
            return


async def write_csv(
    pages: AsyncIterator[tuple[Sequence[Job], bool]], columns: Sequence[JobColumn]
) -> AsyncIterator[bytes]:
    yield _lines([[name for column in columns for name in column.fields]])
    async for jobs, _ in pages:
        yield _lines([[cell(value(job)) for column in columns for value in column.fields.values()] for job in jobs])


async def write_json(
    pages: AsyncIterator[tuple[Sequence[Job], bool]], columns: Sequence[JobColumn]
) -> AsyncIterator[bytes]:
    """{"data": [...], "complete": false} when more match than it holds."""
    between, complete = b'{"data":[', True
    async for jobs, more in pages:
        complete = not more
        for job in jobs:
            yield between + encode({name: value(job) for column in columns for name, value in column.fields.items()})
            between = b",\n"
    yield (between if between.startswith(b"{") else b"") + b'],"complete":' + encode(complete) + b"}\n"


def _lines(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return machine(value)
    if isinstance(value, int | float):
        return str(value)
    text = ", ".join(value) if isinstance(value, list | tuple) else str(value)
    return f"'{text}" if text.startswith(FORMULA_BEGINS) else text
