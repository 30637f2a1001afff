"""Following jobs to their end: bars on a terminal, a line per change in a pipe. A server that is away is waited for."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from paddock.cli.connection import Refusal, Server
from paddock.cli.errors import CommandFailed
from paddock.cli.output import STYLES, Form, console, dump, is_terminal
from paddock.cli.wording import number, size, span

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

Job = Mapping[str, Any]

ENDED = frozenset({"completed", "failed", "cancelled"})
PATIENCE_SECONDS = 120.0
MOST_BARS = 20
LAST_LINES_SECONDS = 2.0
LOOK_SECONDS = 0.2


def follow(server: Server, ids: Sequence[str], output: Form) -> int:
    """0 when all of them completed, else 1."""
    if output in ("json", "yaml", "name"):
        jobs = watch(server, ids, lambda job: None)
        if output == "name":
            sys.stdout.writelines(f"{job['id']}\n" for job in jobs)
        else:
            dump(jobs[0] if len(jobs) == 1 else jobs, output)
    else:
        jobs = _bars(server, ids) if is_terminal() and len(ids) <= MOST_BARS else _lines(server, ids)
        for job in jobs:
            if job["status"] == "failed":
                sys.stderr.write(f"{job['id']} failed: {job['error_message']} [{job['error_code']}]\n")
                sys.stderr.write(f"`paddock why {job['id']}` tells what to do.\n")
    return 0 if all(job["status"] == "completed" for job in jobs) else 1


def watch(server: Server, ids: Sequence[str], changed: Callable[[Job], None]) -> list[Job]:
    """All of them, once they have ended; `changed` is called with each new state on the way.

    Each round waits inside the first call for that job's end, so an end is seen at once and nothing spins.
    """
    known: dict[str, Job] = {}
    open_ids = list(ids)
    while open_ids:
        for place, id in enumerate(open_ids):
            job = _patiently(lambda id=id, first=place == 0: _look(server, id, first))  # type: ignore[misc]
            if known.get(id) != job:
                known[id] = job
                changed(job)
        open_ids = [id for id in open_ids if known[id]["status"] not in ENDED]
    return [known[id] for id in ids]


def _look(server: Server, id: str, first: bool) -> Job:
    found: Job = server.get(f"/api/jobs/{id}", wait=1 if first else None)
    return found


def _patiently(ask: Callable[[], Job]) -> Job:
    deadline = time.monotonic() + PATIENCE_SECONDS
    told = False
    while True:
        try:
            return ask()
        except CommandFailed as failed:
            away = not isinstance(failed, Refusal) or failed.status >= 500
            if not away or time.monotonic() > deadline:
                raise
            if not told:
                sys.stderr.write(f"{failed.message} Waiting for it; the jobs go on.\n")
                told = True
            time.sleep(1)


def _lines(server: Server, ids: Sequence[str]) -> list[Job]:
    before: dict[str, str] = {}

    def changed(job: Job) -> None:
        line = f"{job['id']}  {job['status']:<9}  {detail(job)}".rstrip()
        coarse = f"{job['status']} {int(percent(job) // 10)} {job['turn_count']}"
        if before.get(job["id"]) != coarse:
            before[job["id"]] = coarse
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    return watch(server, ids, changed)


def _bars(server: Server, ids: Sequence[str]) -> list[Job]:
    with bars() as progress:
        tasks = {id: progress.add_task(id[-12:], total=100, status="", detail="") for id in ids}
        return watch(server, ids, lambda job: draw(progress, tasks[str(job["id"])], job))


def bars() -> "Progress":
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[status]}"),
        TextColumn("{task.fields[detail]}"),
        TimeElapsedColumn(),
        console=console(),
    )


def draw(progress: "Progress", task: "TaskID", job: Job) -> None:
    style = STYLES.get(job["status"], "")
    progress.update(
        task,
        completed=100 if job["status"] == "completed" else percent(job),
        status=f"[{style}]{job['status']:<9}[/]" if style else job["status"],
        detail=detail(job).replace("[", "\\["),
    )
    if job["status"] in ENDED:
        progress.stop_task(task)


def percent(job: Job) -> float:
    told = (job.get("report") or {}).get("percent")
    return float(told) if isinstance(told, int | float) else 0.0


def detail(job: Job) -> str:
    """What is worth knowing at this moment, short enough for a line."""
    report = job.get("report") or {}
    if job["status"] == "failed":
        return str(job.get("error_code"))
    if job["status"] == "completed":
        return f"ran {span(job.get('run_seconds') or 0)}" + _attempts(job)
    told = [
        f"on {job['claimed_by']}" if job["status"] == "claimed" else None,
        f"waits for {job['waiting_on']}" if job["status"] == "submitted" else None,
        f"{percent(job):.0f} %" if "percent" in report else None,
        str(report["phase"]) if report.get("phase") else None,
        f"{number(report['rows'])} rows" if isinstance(report.get("rows"), int) else None,
        size(report["bytes"]) if isinstance(report.get("bytes"), int) else None,
        f"{span(report['eta_seconds'])} left" if isinstance(report.get("eta_seconds"), int | float) else None,
    ]
    return ", ".join(part for part in told if part) + _attempts(job)


def _attempts(job: Job) -> str:
    tries = job.get("attempt_count") or 1
    return f", attempt {tries}" if tries > 1 else ""


def log_text(told: Mapping[str, Any]) -> str:
    """The lines of an answer of /logs."""
    return "".join(
        chunk["lines"] if chunk["lines"].endswith("\n") else f"{chunk['lines']}\n" for chunk in told["chunks"]
    )


def follow_logs(server: Server, id: str) -> int:
    """New lines as they come, until the job has ended. Workers send them once a second: the last ones come later."""
    after: str | None = None
    last_look: float | None = None
    while last_look is None or time.monotonic() < last_look:
        job = _patiently(lambda: _look(server, id, True))
        told = server.get(f"/api/jobs/{id}/logs", after=after)
        sys.stdout.write(log_text(told))
        sys.stdout.flush()
        after = told["after"] or after
        if job["status"] in ENDED:
            last_look = last_look or time.monotonic() + LAST_LINES_SECONDS
            time.sleep(LOOK_SECONDS)
    return 0
