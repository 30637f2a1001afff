"""`paddock doctor`: check everything, from here to the end of a job."""

import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter

from paddock.amounts import several, span
from paddock.cli.connection import HERE, Connect, Refusal, Server, open_server
from paddock.cli.errors import CommandFailed
from paddock.cli.output import Output, dump, is_terminal
from paddock.cli.wording import moment

SKEW_SECONDS = 5.0
PROBE_SECONDS = 30.0
LONGEST_CHECKS = 120.0
SIGNS = {"ok": "✓", "warning": "!", "broken": "✗"}
COLOURS = {"ok": "32", "warning": "33", "broken": "31"}


def doctor(
    *,
    probe: bool = True,
    cluster: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Check the server, its database, clocks, object store and workers, and every engine, database to dump and
    destination. Exits 1 when something is broken.

    Parameters
    ----------
    probe:
        Run a small job to its end.
    cluster:
        Run a pod like an instance's on the cluster, and say what it reaches.
    """
    findings: list[dict[str, Any]] = []
    try:
        for finding in examine(connect, probe, cluster):
            findings.append(finding)
            if output == "table":
                _write(finding)
    except CommandFailed as failed:
        findings.append(_finding("server", "broken", failed.message, failed.hint))
        if output == "table":
            _write(findings[-1])
    if output in ("json", "yaml"):
        dump(findings, output)
    elif output == "name":
        sys.stdout.writelines(f"{finding['check']}\n" for finding in findings if finding["level"] != "ok")
    else:
        _sum_up(findings)
    return 1 if any(finding["level"] == "broken" for finding in findings) else 0


def examine(connect: Connect, probe: bool, cluster: bool = False) -> Iterator[dict[str, Any]]:
    server = open_server(connect)
    began = datetime.now(UTC)
    health = server.get("/health")
    yield from _versions(server, health)
    try:
        told = server.answer("GET", "/api/ops/doctor", timeout=LONGEST_CHECKS)["data"]
    except Refusal as refusal:
        if refusal.status not in (403, 404):
            raise
        yield _finding(
            "permission",
            "broken",
            f"The server's own checks need a token of role ops or admin: {refusal.message}",
            "Use the token of an operator: --token-file FILE.",
        )
        return
    yield from _clock(told, began)
    yield from told["findings"]
    if probe:
        yield from _probe(server, {finding["check"] for finding in told["findings"] if finding["level"] == "broken"})
    if cluster:
        yield from _probe_cluster(server)


def _versions(server: Server, health: dict[str, Any]) -> Iterator[dict[str, Any]]:
    import paddock

    there = health.get("version")
    if there != paddock.__version__:
        message = f"{server.url} answers with version {there}; this is {paddock.__version__}."
        yield _finding("server", "warning", message, "Install the same version here, or finish the upgrade there.")
    else:
        yield _finding("server", "ok", f"{server.url} answers, version {there}.")


def _clock(told: dict[str, Any], began: datetime) -> Iterator[dict[str, Any]]:
    there = moment(told["now"])
    assert there is not None
    after = datetime.now(UTC)
    skew = max((there - after).total_seconds(), (began - there).total_seconds(), 0.0)
    message = f"The clock here and the server's differ by {skew:.1f} s."
    if skew > SKEW_SECONDS:
        yield _finding("clock here", "warning", message, "Set this clock by NTP; times shown here will be off.")
    else:
        yield _finding("clock here", "ok", message)


def _probe(server: Server, broken: set[str]) -> Iterator[dict[str, Any]]:
    """The whole way: submit, claim, run, finish."""
    if "workers" in broken:
        return  # it would only wait; that is said already
    if any(kind["name"] == "probe" and kind["unoffered"] for kind in server.pages("/api/kinds", None)):
        # Such are the workers of deploy/: each has the kinds of its work alone.
        message = "No job was run: no live worker offers `probe`."
        what_to_do = (
            "Add it to PADDOCK_WORKER_KINDS of a worker, and to the kinds of its token; --no-probe leaves it out."
        )
        yield _finding("a job", "warning", message, what_to_do)
        return
    began = time.monotonic()
    try:
        job = server.make_work("/api/jobs", {"kind": "probe", "payload": {"result": "well"}, "tags": ["doctor"]})
        while job["completed_at"] is None and time.monotonic() - began < PROBE_SECONDS:
            job = server.get(f"/api/jobs/{job['id']}", wait=5)
    except Refusal as refusal:
        if refusal.exit_code != 4:
            raise
        yield _finding("a job", "warning", f"No probe could be submitted: {refusal.message}", refusal.hint)
        return
    took = time.monotonic() - began
    why = f"`paddock why {job['id']}` tells more."
    if job["completed_at"] is None:
        server.post(f"/api/jobs/{job['id']}/cancel", {"reason": "doctor does not wait any longer"})
        yield _finding("a job", "broken", f"A probe did not end within {span(took)}: it is {job['status']}.", why)
    elif job["status"] != "completed":
        yield _finding("a job", "broken", f"A probe {job['status']}: {job['error_message']}", why)
    else:
        yield _finding("a job", "ok", f"A probe ran on {job['claimed_by']} and completed within {span(took)}.")


def _probe_cluster(server: Server) -> Iterator[dict[str, Any]]:
    """A pod takes as long as its image: whoever asks may wait for it, and gives up by Ctrl-C."""
    check = "cluster probe"
    try:
        made = server.post("/api/ops/cluster/probe", {})
        while (job := server.get(f"/api/jobs/{made['job_id']}", wait=30))["completed_at"] is None:
            pass
    except Refusal as refusal:
        if refusal.exit_code != 4:
            raise
        yield _finding(check, "warning", refusal.message, refusal.hint)
        return
    if job["status"] != "completed":
        why = f"`paddock why {job['id']}` tells more."
        told = f"{job['error_message']} ({job['error_code']})"
        yield _finding(check, "broken", f"The probe {job['status']}: {told}", why)
        return
    yield from job["result"]["findings"]


def _finding(check: str, level: str, message: str, what_to_do: str | None = None) -> dict[str, Any]:
    """As the server's own come over the line."""
    return {"check": check, "level": level, "message": message, "what_to_do": what_to_do}


def _write(finding: dict[str, Any]) -> None:
    level = finding["level"]
    colour, plain = (f"\x1b[{COLOURS[level]}m", "\x1b[0m") if is_terminal() else ("", "")
    sys.stdout.write(f"{colour}{SIGNS[level]}{plain} {finding['check']:<14} {finding['message']}\n")
    if finding["what_to_do"]:
        sys.stdout.write(f"  {'':<14} → {finding['what_to_do']}\n")
    sys.stdout.flush()


def _sum_up(findings: list[dict[str, Any]]) -> None:
    bad = sum(finding["level"] == "broken" for finding in findings)
    odd = sum(finding["level"] == "warning" for finding in findings)
    if bad:
        sys.stdout.write(f"\n{bad} broken, {several(odd, 'warning')}.\n")
    elif odd:
        sys.stdout.write(f"\nWorking, with {several(odd, 'warning')}.\n")
    else:
        sys.stdout.write("\nAll well.\n")
