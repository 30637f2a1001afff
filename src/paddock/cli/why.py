"""`paddock why`: what happened to a job, in words."""

import sys
import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from paddock.cli.connection import HERE, Connect, Server, allowed_to_fail, open_server
from paddock.cli.jobs.naming import whole_id
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
        Job id, or its beginning if that is unique.
    """
    server = open_server(connect)
    whole = whole_id(server, id)
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
    return job, explain(job, server.get(f"/api/jobs/{id}/timeline"), **surroundings(server))


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
