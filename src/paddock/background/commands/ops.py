"""`paddock ops`: the background jobs, and the state of the whole."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from paddock.amounts import span
from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.output import Column, Item, Output, Watch, facts, field, repeatedly, show, show_one, table
from paddock.cli.wording import ago

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="ops", help="Background jobs and the state.")
WAIT_SECONDS = 30


@app.command
def jobs(*, output: Output = "table", watch: Watch = False, connect: Connect = HERE) -> int:
    """Show the background jobs: when each ran, how that went, what it found."""
    server = open_server(connect)

    def found() -> list[dict[str, Any]]:
        return list(server.get("/api/ops/jobs/status"))

    if watch:
        return repeatedly(lambda: table(found(), COLUMNS))
    show(found(), COLUMNS, output, name="job_name", none="No background jobs: start `paddock serve`.")
    return 0


@app.command
def trigger(
    job: str,
    *,
    reason: str,
    force: Annotated[bool, Parameter(negative=())] = False,
    wait: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Run a background job now. With --wait, exit 1 when the pass failed.

    Parameters
    ----------
    job:
        Which: reconciliation, lifecycle, export_reconciliation, schema_cache, instance_orchestration, resource_monitor.
    reason:
        Why: kept in the audit log.
    force:
        Reconciliation: delete orphans however many they are.
    wait:
        Wait for the end of the pass and show what it found.
    """
    server = open_server(connect)
    made = server.make_work("/api/ops/jobs/trigger", {"job_name": job, "reason": reason, "force": force})
    if not wait:
        show_one(made, output, name="job_id", person=lambda item: f"{item['job_id']}  {item['job_name']}  queued")
        return 0
    ended = _ended(server, str(made["job_id"]))
    show_one(ended, output, person=_pass)
    return 0 if ended["status"] == "completed" else 1


def _ended(server: Server, id: str) -> dict[str, Any]:
    while True:
        job: dict[str, Any] = server.get(f"/api/jobs/{id}", wait=WAIT_SECONDS)
        if job["status"] in ("completed", "failed", "cancelled"):
            return job


def _pass(job: Item) -> "RenderableType":
    found = (job.get("result") or {}).get("found") or {}
    return facts(
        [
            ("job", job["kind"]),
            ("status", job["status"]),
            ("found", counts(found)),
            ("error", job.get("error_message")),
            ("id", job["id"]),
        ]
    )


@app.command
def state(*, output: Output = "table", connect: Connect = HERE) -> int:
    """Show the state of the whole: drain, workers, and what there is by status."""
    show_one(open_server(connect).get("/api/ops/state"), output, name="version", person=_state)
    return 0


def _state(told: Item) -> "RenderableType":
    drain, workers = told["drain"], told["workers"]
    jobs = told.get("background_jobs") or {}
    unhealthy = [name for name, job in jobs.items() if not job["healthy"]]
    things = [(name, counts(told[name])) for name in ("instances", "snapshots", "exports", "dumps") if told.get(name)]
    return facts(
        [
            ("version", told["version"]),
            ("drain", f"on: {drain['reason'] or 'no reason given'}" if drain["enabled"] else "off"),
            ("workers", f"{workers['live']} live, {workers['running']} of {workers['slots']} slots taken"),
            *things,
            ("background", f"unhealthy: {', '.join(unhealthy)}" if unhealthy else f"{len(jobs)} jobs, all healthy"),
            ("paused", told["paused_kinds"]),
            ("no worker for", told["unoffered_kinds"]),
        ]
    )


@app.command(name="export-jobs")
def export_jobs(
    *,
    status: Annotated[list[str] | None, Parameter(negative=())] = None,
    snapshot: str | None = None,
    limit: int = 100,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List the jobs of exports, newest first.

    Parameters
    ----------
    status:
        Only these; repeat the option for several.
    snapshot:
        Only those of this snapshot.
    limit:
        How many at most.
    """
    server = open_server(connect)
    found = server.pages("/api/ops/export-jobs", limit, status=status, snapshot_id=snapshot)
    show(found, EXPORT_COLUMNS, output, none="No export jobs.")
    return 0


def counts(found: Item | None) -> str:
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in (found or {}).items() if n) or "nothing"


def _standing(job: Item) -> str:
    if not job["enabled"]:
        return "off"
    if job["failures_in_a_row"]:
        return f"{job['failures_in_a_row']} failed in a row"
    return str(job["status"])


def _duration(job: Item) -> str:
    seconds = job.get("duration_seconds")
    return "-" if seconds is None else f"{seconds:.1f} s"


COLUMNS: Sequence[Column] = (
    field("job_name", "job"),
    Column("every", lambda job: span(job["interval_seconds"]), right=True),
    Column("state", _standing),
    Column("last success", lambda job: ago(job.get("last_success_at"))),
    Column("took", _duration, right=True),
    Column("next", lambda job: ago(job.get("next_run_at")) if job["enabled"] else "-"),
    Column("misfires", lambda job: str(job.get("misfires") or 0), right=True),
    Column("found", lambda job: counts(job.get("found")), wide=True),
    Column("error", lambda job: (job.get("error") or {}).get("message") or "-", wide=True),
)
EXPORT_COLUMNS: Sequence[Column] = (
    field("id"),
    field("job_type", "type"),
    field("entity_name", "name"),
    field("status"),
    Column("rows", lambda job: "-" if job.get("row_count") is None else f"{job['row_count']:,}", right=True),
    field("claimed_by", "worker"),
    field("starburst_query_id", "query"),
    Column("polled", lambda job: str(job.get("poll_count") or 0), right=True),
    field("error_message", "error", wide=True),
)
