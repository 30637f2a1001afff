"""`paddock jobs submit`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import wrong_usage
from paddock.cli.jobs.showing import show_made
from paddock.cli.jobs.watching import exit_code, follow
from paddock.cli.output import Item, Output
from paddock.cli.wording import point_in_time


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
        Not before this time (UTC unless told), or after this long: 2026-11-15T09:00, 10m.
    tag:
        Tags of your own; repeat the option for several.
    count:
        So many of the same, in one transaction.
    key:
        Idempotency key: a repeat with the same key makes nothing new.
    wait:
        Follow it until it ends; exit 1 unless it completed.
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
        return exit_code(follow(server, [str(job["id"]) for job in made], output))
    show_made(made, output)
    return 0


def _make(server: Server, job: Item, count: int, key: str | None) -> list[Item]:
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
