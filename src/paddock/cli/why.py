"""`paddock why`: what happened to a job, in words."""

import sys
import textwrap
from dataclasses import asdict
from typing import Any

from paddock.cli.connection import HERE, Connect, Server, allowed_to_fail, open_server
from paddock.cli.jobs import whole_id
from paddock.cli.output import Output, dump
from paddock.cli.wording import clock_time

WIDTH = 100


def why(id: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Tell what happened to a job, in words, with what to do.

    Parameters
    ----------
    id:
        Job id, or its beginning if that is unique.
    """
    from paddock.why import explain

    server = open_server(connect)
    whole = whole_id(server, id)
    job = server.get(f"/api/jobs/{whole}")
    known = surroundings(server)
    explanation = explain(job, server.get(f"/api/jobs/{whole}/timeline"), **known)
    if output in ("json", "yaml"):
        dump({"id": job["id"], "status": job["status"], **asdict(explanation)}, output)
        return 0
    if output == "name":
        sys.stdout.write(f"{job['id']}\n")
        return 0
    write = sys.stdout.write
    write(textwrap.fill(explanation.sentence, WIDTH) + "\n")
    for advice in explanation.what_to_do:
        write(textwrap.fill(advice, WIDTH, initial_indent="→ ", subsequent_indent="  ") + "\n")
    if explanation.steps:
        write("\n")
    for step in explanation.steps:
        write(f"{clock_time(step.at)}  {step.text}\n")
    return 0


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
