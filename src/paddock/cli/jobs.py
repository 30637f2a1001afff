"""`paddock jobs`: submit, look at, cancel and retry."""

import json
import sys
from collections.abc import Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import NOT_FOUND, CommandFailed, wrong_usage
from paddock.cli.output import (
    Column,
    Form,
    Item,
    Output,
    Watch,
    dump,
    facts,
    field,
    is_narrow,
    is_terminal,
    repeatedly,
    show,
    show_one,
    table,
)
from paddock.cli.wording import ago, clock_time, duration, now, span

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="jobs", help="Submit, look at, cancel and retry jobs.")

Ids = Annotated[list[str], Parameter(help="Job ids, or their beginnings if those are unique.", negative=())]
Reason = Annotated[str | None, Parameter(help="Why: kept in the job's timeline and the audit log.")]
WHOLE_ID = 36
SHORT_ID = 18


@app.command(name="list")
def list_jobs(
    *,
    kind: str | None = None,
    status: str | None = None,
    owner: str | None = None,
    group: str | None = None,
    worker: str | None = None,
    tag: str | None = None,
    error_code: str | None = None,
    since: str | None = None,
    until: str | None = None,
    q: str | None = None,
    limit: int = 50,
    output: Output = "table",
    watch: Watch = False,
    connect: Connect = HERE,
) -> int:
    """List jobs, newest first.

    Parameters
    ----------
    kind:
        Of this kind only.
    status:
        pending, claimed, submitted, completed, failed or cancelled; several with commas.
    owner:
        Asked for by this owner.
    group:
        Of this group.
    worker:
        Held, or last held, by this worker.
    tag:
        With this tag.
    error_code:
        That ended with this error.
    since:
        Made after this time, or within this long: 2026-11-15T09:00Z, 2h, 7d.
    until:
        Made before this time, or longer ago than this.
    q:
        Beginning of the id, or text in the error.
    limit:
        How many at most.
    """
    server = open_server(connect)
    asked = {
        "kind": kind,
        "status": status,
        "owner": owner,
        "group": group,
        "worker": worker,
        "tag": tag,
        "error_code": error_code,
        "since": point_in_time(since),
        "until": point_in_time(until),
        "q": q,
    }

    def found() -> list[dict[str, Any]]:
        return list(server.pages("/api/jobs", limit, **asked))

    if watch:
        return repeatedly(lambda: table(jobs, COLUMNS) if (jobs := found()) else "No jobs.")
    show(found(), COLUMNS, output, none="No jobs match.")
    return 0


@app.command(name="show")
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


@app.command(name="watch")
def watch_jobs(ids: Ids, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Follow jobs until they end: progress bars on a terminal, lines in a pipe. Exits 1 unless all completed."""
    from paddock.cli.watching import follow

    server = open_server(connect)
    return follow(server, [whole_id(server, id) for id in ids], output)


@app.command
def submit(
    kind: str,
    payload: str = "{}",
    /,
    *,
    file: Path | None = None,
    priority: int | None = None,
    run_at: str | None = None,
    tag: Annotated[list[str] | None, Parameter(negative=())] = None,
    count: int = 1,
    key: str | None = None,
    wait: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Submit a job, and with --wait follow it to its end.

    Parameters
    ----------
    kind:
        What to run; `paddock kinds list` names them.
    payload:
        JSON object for it.
    file:
        Read the payload from this file instead; - is standard input.
    priority:
        1 (urgent) to 4 (low); 3 is normal.
    run_at:
        Not before this time, or after this long: 2026-11-15T09:00Z, 10m.
    tag:
        Tags of your own; repeat the option for several.
    count:
        So many of the same, in one transaction.
    key:
        Idempotency key: a repeat with the same key makes nothing new.
    wait:
        Follow it until it ends; exit 1 unless it completed.
    """
    server = open_server(connect)
    job: dict[str, Any] = {"kind": kind, "payload": read_payload(payload, file)}
    if priority is not None:
        job["priority"] = priority
    if run_at is not None:
        job["run_at"] = point_in_time(run_at, ahead=True)
    if tag:
        job["tags"] = tag
    if count == 1:
        made = [server.make_work("/api/jobs", job, key=key)]
    else:
        made = list(server.make_work("/api/jobs/batch", {"jobs": [job] * count}, key=key))
    if not wait:
        _show_made(made, output)
        return 0
    from paddock.cli.watching import follow

    return follow(server, [str(one["id"]) for one in made], output)


@app.command
def cancel(ids: Ids, /, *, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Cancel jobs. One that has ended already is refused (exit 4)."""
    return _each(connect, ids, "cancel", {"reason": reason}, output)


@app.command
def retry(ids: Ids, /, *, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Make a new job for each of these ended ones, with the same kind and payload."""
    return _each(connect, ids, "retry", {"reason": reason}, output)


@app.command(name="run-now")
def run_now(ids: Ids, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Make jobs due that wait in backoff or for their time."""
    return _each(connect, ids, "run-now", {}, output)


@app.command
def logs(
    id: str,
    *,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Show the end of a job's log.

    Parameters
    ----------
    id:
        Job id, or its beginning if that is unique.
    follow:
        Go on until the job ends.
    """
    from paddock.cli.watching import follow_logs, log_text

    server = open_server(connect)
    whole = whole_id(server, id)
    if follow:
        return follow_logs(server, whole)
    told = server.get(f"/api/jobs/{whole}/logs")
    if output in ("json", "yaml"):
        dump(told, output)
    else:
        lines = log_text(told)
        sys.stdout.write(lines)
        if not lines:
            sys.stderr.write("The job has logged nothing.\n")
    return 0


@app.command
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


def entry_reason(entry: Item) -> str:
    error = entry.get("error") or {}
    told = [entry.get("reason"), error.get("message") or error.get("code")]
    if (entry.get("count") or 1) > 1:
        told.append(f"{entry['count']} times")
    return "; ".join(str(part) for part in told if part) or "-"


def progress(job: Item) -> str:
    report = job.get("report") or {}
    if job.get("status") == "completed":
        return "100 %"
    told = [f"{report['percent']:.0f} %" if isinstance(report.get("percent"), int | float) else None]
    told.append(str(report["phase"]) if report.get("phase") else None)
    return ", ".join(part for part in told if part) or "-"


def shown_id(job: Item) -> str:
    """On a narrow terminal its beginning: time and counter, which every command takes for the whole."""
    return str(job["id"])[:SHORT_ID] if is_narrow() else str(job["id"])


COLUMNS: Sequence[Column] = (
    Column("id", shown_id),
    Column("kind", lambda job: f"{job['kind']} cleanup" if job.get("cleanup_of") else str(job["kind"])),
    field("status"),
    Column("progress", progress),
    field("owner"),
    Column("made", lambda job: ago(job.get("created_at"))),
    Column("ran", lambda job: span(job["run_seconds"]) if job.get("run_seconds") else "-", right=True),
    Column("tries", lambda job: str(job.get("attempt_count") or 1), right=True),
    Column("error", lambda job: str(job.get("error_code") or "-"), wide=True),
)

TIMELINE: Sequence[Column] = (
    Column("at", lambda entry: clock_time(entry.get("at"))),
    field("event"),
    Column("from", lambda entry: str(entry.get("from_status") or entry.get("from") or "-")),
    Column("to", lambda entry: str(entry.get("to_status") or entry.get("to") or "-")),
    field("worker"),
    field("actor", "by"),
    Column("why", entry_reason, wide=True),
)


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
        ("made", _when(job.get("created_at"))),
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


def whole_id(server: Server, id: str) -> str:
    """The id somebody means by its beginning."""
    if len(id) >= WHOLE_ID:
        return id
    if len(id) < 4:
        raise wrong_usage(f"'{id}' is too short for a job id: give at least 4 characters.")
    found = [str(job["id"]) for job in server.pages("/api/jobs", 20, q=id) if str(job["id"]).startswith(id.lower())]
    if not found:
        raise CommandFailed(f"No job's id begins with {id}.", exit_code=NOT_FOUND)
    if len(found) > 1:
        raise wrong_usage(f"More than one job's id begins with {id}.", "\n".join(found[:10]))
    return found[0]


def point_in_time(value: str | None, *, ahead: bool = False) -> str | None:
    """A time as it is; a duration counts from now."""
    if value is None:
        return None
    if "-" in value or ":" in value:
        return value
    try:
        length: timedelta = duration(value)
    except ValueError as problem:
        raise wrong_usage(f"{problem} Or give a time, like 2026-11-15T09:00Z.") from None
    return (now() + length if ahead else now() - length).isoformat()


def read_payload(payload: str, file: Path | None) -> Any:
    if file is not None:
        try:
            payload = sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as problem:
            raise wrong_usage(f"{file} cannot be read: {problem}.") from None
    try:
        return json.loads(payload)
    except ValueError as problem:
        raise wrong_usage(
            f"The payload is not JSON: {problem}.", """For example: paddock jobs submit probe '{"turns": 3}'"""
        ) from None


def _each(connect: Connect, ids: Iterable[str], action: str, body: dict[str, Any], output: Form) -> int:
    """Every job is tried; the worst answer is the exit code."""
    from paddock.cli.app import tell

    server = open_server(connect)
    done, worst = [], 0
    body = {name: value for name, value in body.items() if value is not None}
    for id in ids:
        try:
            path = f"/api/jobs/{whole_id(server, id)}/{action}"
            done.append(server.make_work(path, body) if action == "retry" else server.post(path, body))
        except CommandFailed as failed:
            tell(f"{id}: {failed.message}", failed.hint)
            worst = max(worst, failed.exit_code)
    _show_made(done, output)
    return worst


def _show_made(jobs: Sequence[Item], output: Form) -> None:
    if output in ("json", "yaml"):
        dump(jobs[0] if len(jobs) == 1 else list(jobs), output)
        return
    for job in jobs:
        if output == "name" or not is_terminal():
            sys.stdout.write(f"{job['id']}\n" if output == "name" else f"{job['id']}  {job['kind']}  {job['status']}\n")
        else:
            show([job], [field("id"), field("kind"), field("status")], "table", none="")
