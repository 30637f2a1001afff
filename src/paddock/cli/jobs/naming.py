"""Jobs by their ids, or by the beginnings of those."""

import re
from typing import Annotated
from uuid import UUID

from cyclopts import Parameter

from paddock.cli.connection import Refusal, Server
from paddock.cli.errors import NOT_FOUND, CommandFailed, wrong_usage

IDS_HELP = "Job ids, or their beginnings if those are unique."
Ids = Annotated[list[str], Parameter(help=IDS_HELP, negative=())]
WHOLE_ID = 36
# Time and counter: enough to tell one from another.
SHORT_ID = 18
# Ids begin with the time they were made at.
ID_BEGINNING = re.compile(r"0[0-9a-f-]{3,35}\Z")
LONGEST_NAME = 200


def whole_id(server: Server, id: str) -> str:
    """The id somebody means by its beginning."""
    if len(id) >= WHOLE_ID:
        return id.lower()
    if len(id) < 4:
        raise wrong_usage(f"'{id}' is too short for a job id: give at least 4 characters.")
    found = _job_that_begins(server, id)
    if not found:
        raise CommandFailed(f"No job's id begins with {id}.", exit_code=NOT_FOUND)
    return found


def _job_that_begins(server: Server, id: str) -> str | None:
    """The one job whose id begins so."""
    found = [str(job["id"]) for job in server.pages("/api/jobs", 20, q=id) if str(job["id"]).startswith(id.lower())]
    if len(found) > 1:
        raise wrong_usage(f"More than one job's id begins with {id}.", "\n".join(found[:10]))
    return found[0] if found else None


def job_meant(server: Server, name: str) -> str:
    """The job that somebody means by its id, or by the id or the name of what it made."""
    is_job: str | None = None
    try:
        is_job = str(server.get(f"/api/jobs/{UUID(name)}")["id"])
    except ValueError:
        is_job = _job_that_begins(server, name) if ID_BEGINNING.match(name.lower()) else None
    except Refusal as refusal:
        if refusal.status != 404:
            raise
    return is_job or _job_of_thing(server, name)


def _job_of_thing(server: Server, name: str) -> str:
    try:
        found = list(server.get("/api/search", q=name[:LONGEST_NAME], exactly=True, limit=20))
    except Refusal as refusal:
        if refusal.status != 404:
            raise
        found = []  # an older control plane knows no names
    made = [one for one in found if one["job_id"]]
    if len(made) > 1:
        named = "\n".join(f"{one['what']} {one['id']}" for one in made[:10])
        raise wrong_usage(f"More than one thing is called {name}; say which by its id.", named)
    if made:
        return str(made[0]["job_id"])
    if found:
        raise CommandFailed(f"No job is known of the {found[0]['what']} {name}.", exit_code=NOT_FOUND)
    raise CommandFailed(f"No job's id begins with {name}, and nothing is called so.", exit_code=NOT_FOUND)
