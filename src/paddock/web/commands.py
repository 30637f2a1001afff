"""The same from a terminal: what a page shows or does, as a curl and as a `paddock` command to copy.

Every value is quoted for a POSIX shell, whatever it holds. The token is never the real one: `$PADDOCK_TOKEN`, which the
`paddock` command reads by itself.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from paddock.jobs.model import NORMAL, Job

AS_WHOM = '-H "Authorization: Bearer $PADDOCK_TOKEN"'
# One argument of a command may be 128 KiB on Linux; long before that nobody pastes it.
MOST_PAYLOAD = 16 * 1024


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    cli: str | None
    curl: str | None
    note: str | None = None


def commands(server: str, job: Job, payload: Any, *, retriable: bool, submittable: bool) -> list[Command]:
    """`payload` as it may be shown: with secrets masked."""
    found = [get(server, job)]
    if retriable:
        found.append(retry(server, job))
    if submittable:
        found.append(submit(server, job, payload))
    return found


def get(server: str, job: Job) -> Command:
    return Command("Show it", cli(server, "jobs", "show", str(job.id)), curl("GET", f"{server}/api/jobs/{job.id}"))


def retry(server: str, job: Job) -> Command:
    address = f"{server}/api/jobs/{job.id}/retry"
    return Command("Retry it", cli(server, "jobs", "retry", str(job.id)), curl("POST", address))


def submit(server: str, job: Job, payload: Any) -> Command:
    name, text = "Submit it again", orjson.dumps(payload).decode()
    if len(text) > MOST_PAYLOAD:
        return Command(name, None, None, "Its payload is too long for a command: copy it into a file and use --file.")
    body: dict[str, Any] = {"kind": job.kind, "payload": payload}
    options: list[str] = []
    if job.priority != NORMAL:
        body["priority"] = job.priority
        options.append(f"--priority={job.priority}")
    if job.tags:
        body["tags"] = list(job.tags)
        options += [f"--tag={tag}" for tag in job.tags]
    headers = ["Content-Type: application/json"] + ([f"X-Use-Case-Id: {job.role}"] if job.role else [])
    notes = []
    if payload != job.payload:
        notes.append("Secrets are masked: put them in before you run it.")
    if job.role:
        notes.append(f"It ran under the engine role {job.role}, which only curl can name.")
    return Command(
        name,
        None if job.role else cli(server, "jobs", "submit", *options, "--", job.kind, text),
        curl("POST", f"{server}/api/jobs", headers=headers, body=orjson.dumps(body).decode()),
        " ".join(notes) or None,
    )


def cli(server: str, *words: str) -> str:
    first, rest = words[:2], words[2:]
    return shlex.join(["paddock", *first, f"--server={server}", *rest])


def curl(method: str, address: str, *, headers: Sequence[str] = (), body: str | None = None) -> str:
    parts = ["curl -sS", *([] if method == "GET" else [f"-X {method}"]), AS_WHOM]
    parts += [f"-H {shlex.quote(header)}" for header in headers]
    if body is not None:
        parts.append(f"--data-raw {shlex.quote(body)}")
    return " ".join([*parts, shlex.quote(address)])
