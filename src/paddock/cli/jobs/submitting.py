"""`paddock jobs submit`."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import wrong_usage
from paddock.cli.jobs.showing import show_made
from paddock.cli.jobs.watching import exit_code, follow
from paddock.cli.output import Item, Output
from paddock.cli.wording import point_in_time

# As the server takes them: `paddock.jobs.enqueueing.MAX_BATCH`, which would load the database's driver here.
MOST_AT_ONCE = 1_000


def submit(
    kind: str,
    payload: str = "{}",
    /,
    *,
    file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
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
        Read the payload from this file instead; - is standard input. A request may have 1 MiB
        (PADDOCK_MAX_BODY_BYTES of the server).
    priority:
        1 (urgent) to 4 (low); 3 is normal.
    run_at:
        Not before this time (UTC by default), or after this long: 2026-11-15T09:00, 10m.
    tag:
        Tags of your own; repeat the option for several.
    count:
        How many of the same, in one transaction; 1 to 1,000.
    key:
        Idempotency key: a repeat with the same key makes nothing new.
    wait:
        Follow it until it ends, and print its result; exit 1 unless it completed.
    """
    asked = {
        "kind": kind,
        "payload": read_payload(payload, file),
        "priority": priority,
        "run_at": None if run_at is None else point_in_time(run_at, ahead=True),
        "tags": tag,
    }
    server = open_server(connect)
    made = _make(server, {name: value for name, value in asked.items() if value is not None}, count, key)
    if wait:
        ended = follow(server, [str(job["id"]) for job in made], output)
        if output == "table":
            _tell_results(ended)
        return exit_code(ended)
    show_made(made, output)
    return 0


def _tell_results(jobs: Sequence[Item]) -> None:
    """As JSON, each on a line of its own, so that `tail -1 | jq` reads one."""
    for job in jobs:
        if job.get("result") is not None:
            name = "" if len(jobs) == 1 else f"{job['id']}  "
            sys.stdout.write(f"{name}{json.dumps(job['result'], ensure_ascii=False)}\n")


def _make(server: Server, job: Item, count: int, key: str | None) -> list[Item]:
    if not 1 <= count <= MOST_AT_ONCE:
        raise wrong_usage(f"--count is {count:,}; one submission makes 1 to {MOST_AT_ONCE:,} jobs.")
    if count == 1:
        return [server.make_work("/api/jobs", job, key=key)]
    return list(server.make_work("/api/jobs/batch", {"jobs": [job] * count}, key=key))


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
