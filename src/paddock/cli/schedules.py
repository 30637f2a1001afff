"""`paddock schedules`: jobs by interval or cron."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from paddock.amounts import span
from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.errors import wrong_usage
from paddock.cli.jobs.submitting import read_payload
from paddock.cli.output import Column, Item, Output, Watch, facts, field, show_one, show_or_watch
from paddock.cli.wording import ago, duration, iso

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="schedules", help="Jobs by interval or cron.")
Reason = Annotated[str | None, Parameter(help="Why: kept in the audit log.")]


@app.command(name="list")
def list_schedules(*, output: Output = "table", watch: Watch = False, connect: Connect = HERE) -> int:
    """List the schedules with their next and last runs."""
    server = open_server(connect)
    return show_or_watch(
        lambda: server.pages("/api/schedules", None), COLUMNS, output, watch=watch, name="name", none="No schedules."
    )


@app.command
def create(
    name: str,
    kind: str,
    payload: str = "{}",
    /,
    *,
    every: str | None = None,
    cron: str | None = None,
    timezone: str | None = None,
    file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    priority: int | None = None,
    tag: Annotated[list[str] | None, Parameter(negative=())] = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Create a schedule. A run that is missed is made up for by one; one that overlaps is skipped.

    Parameters
    ----------
    name:
        Its name.
    kind:
        What to run.
    payload:
        JSON object for each run.
    every:
        Interval: 30s, 5m, 2h, 1d, PT90S.
    cron:
        Cron expression, like '0 3 * * *'.
    timezone:
        Time zone of the cron expression; UTC by default.
    file:
        Read the payload from this file instead; - is standard input.
    priority:
        1 (urgent) to 4 (low).
    tag:
        Tags of each run; repeat the option for several.
    """
    if (every is None) == (cron is None):
        raise wrong_usage("Give either --every or --cron.")
    body: dict[str, Any] = {"name": name, "kind": kind, "payload": read_payload(payload, file)}
    if every is not None:
        try:
            body["every"] = iso(duration(every))
        except ValueError as problem:
            raise wrong_usage(str(problem)) from None
    body |= {
        key: value
        for key, value in {"cron": cron, "timezone": timezone, "priority": priority, "tags": tag}.items()
        if value is not None
    }
    show_one(open_server(connect).post("/api/schedules", body), output, name="name", person=sheet)
    return 0


@app.command
def run(name: str, *, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Run a schedule's job now; its next times stay as they are."""
    job = open_server(connect).make_work(f"{_path(name)}/run", {} if reason is None else {"reason": reason})
    show_one(job, output, person=lambda made: f"{made['id']}  {made['kind']}  {made['status']}")
    return 0


@app.command
def enable(name: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Enable a schedule."""
    return _change(connect, name, {"enabled": True}, output)


@app.command
def disable(name: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Disable a schedule; it is kept, but runs nothing."""
    return _change(connect, name, {"enabled": False}, output)


@app.command
def delete(name: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Delete a schedule; its jobs stay."""
    open_server(connect).delete(_path(name))
    show_one({"name": name, "deleted": True}, output, name="name", person=lambda _: f"{name} is deleted.")
    return 0


def _path(name: str) -> str:
    return f"/api/schedules/{quote(name, safe='')}"


def _change(connect: Connect, name: str, body: dict[str, Any], output: Any) -> int:
    show_one(open_server(connect).patch(_path(name), body), output, name="name", person=sheet)
    return 0


def rhythm(schedule: Item) -> str:
    if schedule.get("cron"):
        zone = schedule.get("timezone") or "UTC"
        return f"{schedule['cron']}" + ("" if zone == "UTC" else f" {zone}")
    every = schedule.get("every")
    if every is None:
        return "-"
    seconds = float(every) if isinstance(every, int | float) else duration(str(every)).total_seconds()
    return f"every {span(seconds)}"


def sheet(schedule: Item) -> "RenderableType":
    return facts(
        [
            ("name", schedule["name"]),
            ("kind", schedule.get("kind")),
            ("owner", schedule.get("owner")),
            ("runs", rhythm(schedule)),
            ("enabled", schedule.get("enabled")),
            ("next", ago(schedule.get("next_at")) if schedule.get("enabled", True) else "never: disabled"),
            ("last", ago(schedule.get("last_at"))),
            ("outcome", outcome(schedule)),
            ("skipped", schedule.get("skipped") or None),
            ("problem", schedule.get("last_problem")),
            ("payload", schedule.get("payload")),
        ]
    )


def outcome(schedule: Item) -> str:
    """Of the newest run that has ended, and of the one that runs now: `failed export 019a8b1e-…`."""
    runs = schedule.get("last_runs") or []
    ended = next((run for run in runs if run.get("ended_at")), None)
    shown = [run for run in runs[:1] if run is not ended] + ([ended] if ended else [])
    return ", before ".join(map(_run, shown)) or "-"


def _run(run: Item) -> str:
    made = " ".join(f"{what} {id}" for what, id in (run.get("made") or {}).items())
    return f"{run['status'] or 'no longer kept'} {made or 'job ' + str(run['outcome_job_id'] or run['job_id'])}"


COLUMNS: Sequence[Column] = (
    field("name"),
    field("kind"),
    Column("runs", rhythm),
    field("enabled"),
    field("owner"),
    Column("next", lambda schedule: ago(schedule.get("next_at")) if schedule.get("enabled", True) else "-"),
    Column("last", lambda schedule: ago(schedule.get("last_at"))),
    Column("outcome", outcome, wide=True),
    Column("skipped", lambda schedule: str(schedule.get("skipped") or 0), right=True),
    field("last_problem", "problem", wide=True),
)
