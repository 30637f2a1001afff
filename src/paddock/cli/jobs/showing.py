"""`paddock jobs show` and `timeline`: one job, and what happened to it."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddock.amounts import span
from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.jobs.naming import whole_id
from paddock.cli.jobs.progress import progress
from paddock.cli.output import (
    Column,
    Form,
    Item,
    Output,
    Watch,
    dump,
    facts,
    field,
    is_terminal,
    repeatedly,
    show,
    show_one,
)
from paddock.cli.wording import ago, clock_time

if TYPE_CHECKING:
    from rich.console import RenderableType


def show_job(id: str, *, output: Output = "table", watch: Watch = False, connect: Connect = HERE) -> int:
    """Show one job with its report, result and errors.

    Parameters
    ----------
    id:
        Job id, or its beginning if that is unique.
    """
    server = open_server(connect)
    whole = whole_id(server, id)
    if watch:
        return repeatedly(lambda: sheet(server.get(f"/api/jobs/{whole}")))
    show_one(server.get(f"/api/jobs/{whole}"), output, person=sheet)
    return 0


def timeline(id: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Show what happened to a job, oldest first; `paddock why` tells it in words.

    Parameters
    ----------
    id:
        Job id, or its beginning if that is unique.
    """
    server = open_server(connect)
    entries = server.get(f"/api/jobs/{whole_id(server, id)}/timeline")
    show(entries, TIMELINE, output, name="event", none="Nothing happened yet.")
    return 0


def show_made(jobs: Sequence[Item], output: Form) -> None:
    """What was just made or changed: a line for each."""
    if output in ("json", "yaml"):
        dump(jobs[0] if len(jobs) == 1 else list(jobs), output)
    elif output == "name":
        sys.stdout.writelines(f"{job['id']}\n" for job in jobs)
    elif is_terminal() and jobs:
        show(jobs, [field("id"), field("kind"), field("status")], "table", none="")
    else:
        sys.stdout.writelines(f"{job['id']}  {job['kind']}  {job['status']}\n" for job in jobs)


def sheet(job: Item) -> "RenderableType":
    lines: list[tuple[str, object]] = [
        ("id", job["id"]),
        ("kind", job["kind"]),
        ("status", job["status"]),
        ("progress", None if progress(job) == "-" else progress(job)),
        ("waits for", job.get("waiting_on") if job["status"] == "submitted" else None),
        ("due", _when(job.get("visible_at")) if job["status"] in ("pending", "submitted") else None),
        ("held by", job.get("claimed_by") if job["status"] == "claimed" else None),
        ("held until", _when(job.get("visible_at")) if job["status"] == "claimed" else None),
        ("owner", job.get("owner")),
        ("priority", job.get("priority")),
        ("tags", job.get("tags")),
        ("created", _when(job.get("created_at"))),
        ("first run", _when(job.get("started_at"))),
        ("ended", _when(job.get("completed_at"))),
        ("ran for", span(job["run_seconds"]) if job.get("run_seconds") else None),
        ("waited", span(job["wait_seconds"]) if job.get("wait_seconds") else None),
        ("turns", job.get("turn_count")),
        ("failures", job.get("failure_count") or None),
        ("workers lost", job.get("lost_count") or None),
        ("lock", job.get("lock_key")),
        ("group", job.get("group_id")),
        ("schedule", job.get("schedule")),
        ("retry of", job.get("retry_of")),
        ("retried by", job.get("retried_by")),
        ("cleans up after", job.get("cleanup_of")),
        ("payload", job.get("payload")),
        ("report", job.get("report")),
        ("result", job.get("result")),
        ("error", job.get("error_message")),
        ("error code", job.get("error_code")),
    ]
    return facts(lines)


def _when(value: object) -> str | None:
    return f"{clock_time(value)} ({ago(value)})" if value else None


def entry_reason(entry: Item) -> str:
    error = entry.get("error") or {}
    told = [entry.get("reason"), error.get("message") or error.get("code")]
    if (entry.get("count") or 1) > 1:
        told.append(f"{entry['count']} times")
    return "; ".join(str(part) for part in told if part) or "-"


TIMELINE: Sequence[Column] = (
    Column("at", lambda entry: clock_time(entry.get("at"))),
    field("event"),
    Column("from", lambda entry: str(entry.get("from_status") or entry.get("from") or "-")),
    Column("to", lambda entry: str(entry.get("to_status") or entry.get("to") or "-")),
    field("worker"),
    field("actor", "by"),
    Column("why", entry_reason, wide=True),
)
