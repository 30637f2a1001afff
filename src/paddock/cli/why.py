"""`paddock why`: what happened to a job, in words."""

import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paddock.cli.connection import HERE, Connect, Refusal, Server, allowed_to_fail, open_server
from paddock.cli.jobs.naming import job_meant
from paddock.cli.output import Output, dump
from paddock.cli.wording import clock_time

if TYPE_CHECKING:
    from paddock.why import Explanation

WIDTH = 100


def why(id: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Tell what happened to a job, in words, with what to do.

    Parameters
    ----------
    id:
        Job id, or its beginning if that is unique. Or the id or name of what a job made: an export, a snapshot, a dump, an
        instance, an ingest run, a table, a schedule.
    """
    server = open_server(connect)
    whole = job_meant(server, id)
    if output == "table":
        tell(server, whole)
        return 0
    job, explanation = explained(server, whole)
    if output == "name":
        sys.stdout.write(f"{job['id']}\n")
    else:
        told = {"sentence": explanation.sentence, "steps": [asdict(step) for step in explanation.steps]}
        dump({"id": job["id"], "status": job["status"], **told, "what_to_do": explanation.what_to_do}, output)
    return 0


def tell(server: Server, id: str) -> None:
    _, explanation = explained(server, id)
    write = sys.stdout.write
    write(textwrap.fill(explanation.sentence, WIDTH) + "\n")
    for advice in explanation.what_to_do:
        write(textwrap.fill(advice, WIDTH, initial_indent="→ ", subsequent_indent="  ") + "\n")
    if explanation.steps:
        write("\n")
    for step in explanation.steps:
        write(f"{clock_time(step.at)}  {step.text}\n")


def explained(server: Server, id: str) -> tuple[dict[str, Any], "Explanation"]:
    from paddock.why import explain

    job = server.get(f"/api/jobs/{id}")
    timeline = server.get(f"/api/jobs/{id}/timeline")
    return job, explain(
        job, timeline, ordered=ordered_by(server, job), around=around(server, id), **surroundings(server)
    )


def around(server: Server, id: str) -> list[dict[str, Any]]:
    """What is to be said of the whole that it is part of; an older control plane says nothing."""
    try:
        return list(server.get(f"/api/jobs/{id}/around"))
    except Refusal as refusal:
        if refusal.status not in (403, 404):
            raise
        return []


def ordered_by(server: Server, job: dict[str, Any]) -> dict[str, Any] | None:
    """The job that does what this one ordered, or that job's last retry."""
    path, found = job.get("links", {}).get("ordered_job"), None
    while path is not None:
        try:
            found = server.get(path)
        except Refusal as refusal:
            if refusal.status not in (403, 404):
                raise
            return found
        path = found["links"].get("retried_by")
    return found


def surroundings(server: Server) -> dict[str, Any]:
    """Kinds, workers and state, as far as the caller may see them."""
    known: dict[str, Any] = {"kinds": None, "workers": None, "state": None}
    with allowed_to_fail():
        known["kinds"] = list(server.pages("/api/kinds", None))
    with allowed_to_fail():
        known["workers"] = list(server.pages("/api/workers", None))
    with allowed_to_fail():
        known["state"] = server.get("/api/ops/state")
    return known
