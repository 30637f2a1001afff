"""The columns of the list of jobs: which there are, which a person chose, and what each says in a download.

The choice is a cookie, so that the server draws the same table with and without scripts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request

from paddock.api.tokens import Caller
from paddock.jobs.model import Job
from paddock.web.progress import progress_of

COOKIE = "paddock_job_columns"
KEPT_SECONDS = 365 * 86_400


@dataclass(frozen=True, slots=True)
class JobColumn:
    """`fields` are what a download has of it, by their names in the API."""

    key: str
    head: str
    fields: Mapping[str, Callable[[Job], Any]]
    chosen: bool = False
    right: bool = False


def next_try(job: Job) -> datetime | None:
    return job.due_at if job.status in ("pending", "submitted") else None


def may_run_now(job: Job) -> bool:
    due = next_try(job)
    return due is not None and due > datetime.now(UTC) and job.cleanup_of is None


def may_cancel(job: Job) -> bool:
    return not job.ended and job.cleanup_of is None


def may_retry(job: Job) -> bool:
    return job.status in ("failed", "cancelled") and job.retried_by is None and job.cleanup_of is None


def _progress_text(job: Job) -> str | None:
    found = progress_of(job)
    return None if found is None else found.text


def _field(name: str) -> Mapping[str, Callable[[Job], Any]]:
    return {name: lambda job: getattr(job, name)}


ID = JobColumn("id", "Job", _field("id"), chosen=True)
OWNER = JobColumn("owner", "Owner", _field("owner"), chosen=True)
COLUMNS: Sequence[JobColumn] = (
    ID,
    JobColumn("kind", "Kind", _field("kind"), chosen=True),
    JobColumn("about", "About", _field("about"), chosen=True),
    JobColumn("status", "Status", _field("status"), chosen=True),
    JobColumn("progress", "Progress", {"progress": _progress_text}, chosen=True),
    OWNER,
    JobColumn("tags", "Tags", _field("tags")),
    JobColumn("priority", "Priority", _field("priority"), right=True),
    JobColumn("made", "Created", _field("created_at"), chosen=True),
    JobColumn("started", "Started", _field("started_at")),
    JobColumn("ended", "Ended", _field("completed_at")),
    JobColumn("duration", "Ran", _field("run_seconds"), chosen=True, right=True),
    JobColumn("next", "Next try", {"due_at": next_try}),
    JobColumn("attempts", "Attempts", _field("attempt_count"), right=True),
    JobColumn("worker", "Worker", _field("claimed_by")),
    JobColumn("group", "Group", _field("group_id")),
    JobColumn("error", "Last error", {**_field("error_code"), **_field("error_message")}, chosen=True),
)


def chosen(request: Request, caller: Caller) -> list[JobColumn]:
    keys = request.cookies.get(COOKIE, "").split(".")
    return picked(keys) or [column for column in COLUMNS if column.chosen and (column is not OWNER or caller.operator)]


def picked(keys: Sequence[str]) -> list[JobColumn]:
    """Those of them that there are, in their order; the id is always there, for it is the way to the job."""
    found = [column for column in COLUMNS if column.key in keys]
    return [] if not found else found if ID in found else [ID, *found]
