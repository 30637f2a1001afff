"""`paddock jobs watch`: bars on a terminal, a line for each change in a pipe."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import FAILED
from paddock.cli.jobs.naming import Ids, whole_id
from paddock.cli.jobs.progress import ENDED, detail, percent
from paddock.cli.jobs.streaming import watch
from paddock.cli.output import STYLES, Form, Item, Output, console, dump, is_terminal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

MOST_BARS = 20


def watch_jobs(ids: Ids, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Follow jobs until they end: progress bars on a terminal, lines in a pipe. Exits 1 unless all completed."""
    server = open_server(connect)
    return exit_code(follow(server, list(dict.fromkeys(whole_id(server, id) for id in ids)), output))


def follow(server: Server, ids: Sequence[str], output: Form) -> list[Item]:
    """The jobs once they have ended. Only a person is shown the way there."""
    if output != "table":
        jobs = watch(server, ids, lambda job: None)
        _answer(jobs, output)
        return jobs
    jobs = _bars(server, ids) if is_terminal() and len(ids) <= MOST_BARS else _lines(server, ids)
    for job in jobs:
        if job["status"] == "failed":
            sys.stderr.write(f"{job['id']} failed: {job['error_message']} [{job['error_code']}]\n")
            sys.stderr.write(f"`paddock why {job['id']}` tells what to do.\n")
    return jobs


def exit_code(jobs: Sequence[Item]) -> int:
    return 0 if all(job["status"] == "completed" for job in jobs) else FAILED


def _answer(jobs: Sequence[Item], output: Form) -> None:
    if output == "name":
        sys.stdout.writelines(f"{job['id']}\n" for job in jobs)
    else:
        dump(jobs[0] if len(jobs) == 1 else jobs, output)


def _lines(server: Server, ids: Sequence[str]) -> list[Item]:
    before: dict[str, str] = {}

    def changed(job: Item) -> None:
        line = f"{job['id']}  {job['status']:<9}  {detail(job)}".rstrip()
        coarse = f"{job['status']} {int((percent(job) or 0) // 10)} {job['turn_count']}"
        if before.get(job["id"]) != coarse:
            before[job["id"]] = coarse
            sys.stdout.write(line + "\n")
            sys.stdout.flush()

    return watch(server, ids, changed)


def _bars(server: Server, ids: Sequence[str]) -> list[Item]:
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


def draw(progress: "Progress", task: "TaskID", job: Item) -> None:
    style = STYLES.get(job["status"], "")
    progress.update(
        task,
        completed=100 if job["status"] == "completed" else percent(job) or 0,
        status=f"[{style}]{job['status']:<9}[/]" if style else job["status"],
        detail=detail(job).replace("[", "\\["),
    )
    if job["status"] in ENDED:
        progress.stop_task(task)
