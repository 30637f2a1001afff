"""`paddock jobs list`."""

from collections.abc import Sequence

from paddock.amounts import span
from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.jobs.filtering import ANY, Which
from paddock.cli.jobs.naming import SHORT_ID
from paddock.cli.jobs.progress import progress
from paddock.cli.output import Column, Item, Output, Watch, field, is_narrow, show_or_watch
from paddock.cli.wording import ago


def list_jobs(
    *, which: Which = ANY, limit: int = 50, output: Output = "table", watch: Watch = False, connect: Connect = HERE
) -> int:
    """List jobs, newest first.

    Parameters
    ----------
    limit:
        How many at most.
    """
    asked = which.as_parameters()
    server = open_server(connect)
    return show_or_watch(
        lambda: server.pages("/api/jobs", limit, **asked), COLUMNS, output, watch=watch, none="No jobs match."
    )


def shown_id(job: Item) -> str:
    """On a narrow terminal its beginning, which every command takes for the whole."""
    return str(job["id"])[:SHORT_ID] if is_narrow() else str(job["id"])


COLUMNS: Sequence[Column] = (
    Column("id", shown_id),
    Column("kind", lambda job: f"{job['kind']} cleanup" if job.get("cleanup_of") else str(job["kind"])),
    field("status"),
    Column("progress", progress),
    field("owner"),
    Column("created", lambda job: ago(job.get("created_at"))),
    Column("ran", lambda job: span(job["run_seconds"]) if job.get("run_seconds") else "-", right=True),
    Column("tries", lambda job: str(job.get("attempt_count") or 1), right=True),
    Column("error", lambda job: str(job.get("error_code") or "-"), wide=True),
    Column("about", lambda job: str(job.get("about") or "-"), wide=True, longest_in_pipe=80),
)
