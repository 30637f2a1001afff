"""What the button "Schedule…" of an export and of a snapshot fills in."""

from datetime import timedelta

from paddock.api.durations import iso
from paddock.api.errors import not_found
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.exports import mappings
from paddock.exports.pages import export_words
from paddock.exports.service import visible_export
from paddock.exports.snapshot_service import visible_snapshot
from paddock.jobs.model import JsonObject
from paddock.log import masked
from paddock.web.planning import Planned, name_of

USUAL_TTL = timedelta(days=7)


async def of_export(plane: ControlPlane, caller: Caller, id: str) -> Planned:
    export = await visible_export(plane, caller, id)
    request = export.request if export.owner == caller.owner else masked(export.request)
    payload: JsonObject = {**request, "engine": export.engine}
    if export.role is not None:
        payload["role"] = export.role
    if export.ttl != USUAL_TTL:
        payload["ttl"] = iso(export.ttl)
    destination = request.get("destination")
    fixed = destination is not None and "{" not in destination
    return Planned(
        "scheduled_export",
        payload,
        name_of(export.name or str(request.get("table") or "export")),
        [
            ("Exports", export_words.what_of(export)),
            ("With", export.engine if export.role is None else f"{export.engine} as {export.role}"),
            ("As", export_words.format_of(export)),
            ("To", destination or "files to download, a new export each time"),
        ],
        note="Each run would write to the same place: put {date} or {hour} into `destination` below." if fixed else "",
    )


async def of_snapshot(plane: ControlPlane, caller: Caller, id: str) -> Planned:
    snapshot = await visible_snapshot(plane, caller, id)
    mapping = await mappings.get(plane.core.db, snapshot.mapping_id)
    if mapping is None or not caller.sees(mapping.owner):
        raise not_found("mapping")
    wanted = {name: snapshot.request.get(found) for name, found in ASKED.items()}
    payload: JsonObject = {
        "mapping_id": str(mapping.id),
        "engine": snapshot.engine,
        **{name: value for name, value in {**wanted, "role": snapshot.role, "ttl": iso(snapshot.ttl)}.items() if value},
    }
    return Planned(
        "scheduled_snapshot",
        payload,
        name_of(mapping.name),
        [
            ("Makes", f"a snapshot of the mapping {mapping.name}, of its newest version each time"),
            ("With", snapshot.engine if snapshot.role is None else f"{snapshot.engine} as {snapshot.role}"),
            ("Kept", "until somebody deletes it" if snapshot.ttl is None else f"for {iso(snapshot.ttl)}"),
        ],
        note="Each run makes files that stay: put `ttl` below, like P7D, to have old ones deleted."
        if snapshot.ttl is None
        else "",
    )


# What a snapshot was asked for, by the names of the request.
ASKED = {"catalog": "catalog", "schema": "schema_name", "mode": "mode"}
