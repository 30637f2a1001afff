"""Databases by their name, and dumps by their id."""

from paddock.api.finding import Found, Sought
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.dumps import dumps
from paddock.dumps.databases import databases_of
from paddock.dumps.service import visible_databases

# How every dump's id begins, and what sorts after all that begin with one.
BEGINNING = "export_"
AFTER = "\x7f"


async def find(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    found = [
        Found("database", name, name, f"/dumps?database={name}")
        for name in databases_of(plane.config, caller)
        if sought.fits(name)
    ]
    if not sought.text.startswith(BEGINNING):
        return found[: sought.limit]
    databases = visible_databases(plane, caller, None)
    seen = await dumps.page(plane.core.db, databases, before=sought.text + AFTER, limit=sought.limit)
    return found + [
        Found("dump", one.id, one.id, f"/dumps/{one.id}", one.shown_status, one.live or one.job_id)
        for one in seen
        if one.id.startswith(sought.text)
    ]
