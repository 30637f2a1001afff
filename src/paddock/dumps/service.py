"""What a caller may do with dumps, whoever asks: a route, a page or a command only translates.

Who may not have a database sees neither it nor its dumps; that is asked at every request again.
"""

from paddock import tracing
from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.api.tokens import EVERYTHING, Caller
from paddock.dumps import dumps
from paddock.dumps.database_settings import databases_from
from paddock.dumps.databases import databases_of, may_dump
from paddock.dumps.dumps import Dump, NewDump
from paddock.dumps.request import DumpRequest, check_async, new_dump, which


def prepare_dump(plane: ControlPlane, caller: Caller, body: DumpRequest) -> NewDump:
    """What a request becomes, if this caller may have it; the dashboard's form comes here too."""
    config = plane.config
    check_async(config, body)
    if body.table is not None and body.tables:
        raise ApiError(400, "invalid_export", "Name either `table` or `tables`.")
    database = which(config, body.database, databases_of(config, caller))
    shown = body.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude={"asynchronous", "callback_url"})
    return new_dump(
        config,
        databases_from(config)[database],
        database=database,
        format=body.format,
        options=body.options,
        owner=caller.owner,
        request={**shown, "database": database, "format": body.format},
        callback_url=body.callback_url,
        traceparent=tracing.inject(),
    )


def visible_databases(plane: ControlPlane, caller: Caller, database: str | None) -> list[str] | None:
    """None: those of all databases, also of those that are configured no more."""
    if database is not None:
        return [database] if may_dump(plane.config, caller, database) else []
    granted = caller.granted("databases")
    if caller.operator or EVERYTHING in granted:
        return None
    return sorted(granted.union(databases_of(plane.config, caller)))


async def own_dump(plane: ControlPlane, caller: Caller, id: str, *, deleting: bool = False) -> Dump:
    """One that this caller may change: whose a dump is decides that, and not whose its database is."""
    found = await visible_dump(plane, caller, id, deleting=deleting)
    if not caller.sees(found.owner):
        raise ApiError(403, "not_allowed", "Only its owner may cancel, retry or remove it.")
    return found


async def cancel_or_remove(plane: ControlPlane, caller: Caller, id: str) -> str:
    """What became of it. A job that ends by itself just now is no longer to be cancelled, and its dump goes."""
    for _ in range(3):
        live = await dumps.delete(plane.core, id, actor=caller.actor)
        if live is None:
            return "deleted"
        if (await plane.core.cancel([live], actor=caller.actor))[live] == "cancelled":
            return "cancelled"
    raise ApiError(409, "export_busy", "The export is being started again and again.", hint="Ask once more.")


async def visible_dump(plane: ControlPlane, caller: Caller, id: str, *, deleting: bool = False) -> Dump:
    found = await dumps.get(plane.core.db, id)
    if (
        found is None
        or not may_dump(plane.config, caller, found.database)
        or (found.status == "deleting" and not deleting)
    ):
        raise ApiError(404, "not_found", "Export job not found.")
    return found
