"""Jobs by their ids, or by the beginnings of those."""

from typing import Annotated

from cyclopts import Parameter

from paddock.cli.connection import Server
from paddock.cli.errors import NOT_FOUND, CommandFailed, wrong_usage

IDS_HELP = "Job ids, or their beginnings if those are unique."
Ids = Annotated[list[str], Parameter(help=IDS_HELP, negative=())]
WHOLE_ID = 36
# Time and counter: enough to tell one from another.
SHORT_ID = 18


def whole_id(server: Server, id: str) -> str:
    """The id somebody means by its beginning."""
    if len(id) >= WHOLE_ID:
        return id.lower()
    if len(id) < 4:
        raise wrong_usage(f"'{id}' is too short for a job id: give at least 4 characters.")
    found = [str(job["id"]) for job in server.pages("/api/jobs", 20, q=id) if str(job["id"]).startswith(id.lower())]
    if not found:
        raise CommandFailed(f"No job's id begins with {id}.", exit_code=NOT_FOUND)
    if len(found) > 1:
        raise wrong_usage(f"More than one job's id begins with {id}.", "\n".join(found[:10]))
    return found[0]
