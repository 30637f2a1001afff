"""`paddock jobs logs`: what the handler logged."""

import sys
import time
from typing import Annotated

from cyclopts import Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.jobs.naming import whole_id
from paddock.cli.jobs.progress import ENDED
from paddock.cli.jobs.streaming import patiently
from paddock.cli.output import Item, Output, dump

LAST_LINES_SECONDS = 2.0
LOOK_SECONDS = 0.2


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


def log_text(told: Item) -> str:
    """The lines of an answer of /logs."""
    return "".join(
        chunk["lines"] if chunk["lines"].endswith("\n") else f"{chunk['lines']}\n" for chunk in told["chunks"]
    )


def follow_logs(server: Server, id: str) -> int:
    """New lines as they come, until the job has ended. Workers send them once a second: the last ones come later."""
    after: str | None = None
    last_look: float | None = None
    while last_look is None or time.monotonic() < last_look:
        job = patiently(lambda: server.get(f"/api/jobs/{id}", wait=1))
        told = server.get(f"/api/jobs/{id}/logs", after=after)
        sys.stdout.write(log_text(told))
        sys.stdout.flush()
        after = told["after"] or after
        if job["status"] in ENDED:
            last_look = last_look or time.monotonic() + LAST_LINES_SECONDS
            time.sleep(LOOK_SECONDS)
    return 0
