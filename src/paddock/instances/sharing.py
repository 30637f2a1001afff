"""With whom an owner shares an instance, and the queries that people keep with a mapping."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from paddock.api.errors import ApiError, invalid_field, not_found
from paddock.api.ids import path_id
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.exports.mapping_service import visible_mapping
from paddock.instances import moving, service
from paddock.instances.bodies import SavedQueryBody
from paddock.instances.model import SQL, subject_of
from paddock.jobs.acting import audit

MOST_GRANTS = 100
MOST_SAVED = 500


async def share(plane: ControlPlane, caller: Caller, text: str, owner: str) -> Sequence[dict[str, Any]]:
    """They may read and query it from now on. Shared before: nothing changes."""
    found = await service.changeable(plane, caller, text)
    if not 1 <= len(owner) <= 255 or not owner.isprintable():
        raise invalid_field("owner", "It is the name of an owner, with at most 255 characters.")
    if owner == found.owner:
        raise invalid_field("owner", "The instance is theirs already.")
    async with plane.core.db.transaction() as tx:
        if await tx.fetchrow(SQL["lock_instance"], found.id) is None:
            raise not_found("instance")
        if len(found.shared_with) >= MOST_GRANTS and owner not in found.shared_with:
            raise invalid_field("owner", f"An instance is shared with at most {MOST_GRANTS} others.")
        if await tx.fetchval(SQL["put_grant"], found.id, owner, caller.actor):
            await audit(tx, caller.actor, "instance_shared", subject_of(found.id), details={"with": owner})
            event = moving.event("shared", found.id, **{"with": owner, "shared": True})
            await plane.core.make(tx, [event], owner=found.owner)
    return await grants(plane, caller, text)


async def unshare(plane: ControlPlane, caller: Caller, text: str, owner: str) -> Sequence[dict[str, Any]]:
    found = await service.changeable(plane, caller, text)
    async with plane.core.db.transaction() as tx:
        if await tx.fetchval(SQL["drop_grant"], found.id, owner):
            await audit(tx, caller.actor, "instance_unshared", subject_of(found.id), details={"with": owner})
            event = moving.event("shared", found.id, **{"with": owner, "shared": False})
            await plane.core.make(tx, [event], owner=found.owner)
    return await grants(plane, caller, text)


async def grants(plane: ControlPlane, caller: Caller, text: str) -> Sequence[dict[str, Any]]:
    found = await service.visible(plane, caller, text)
    return [dict(row) for row in await plane.core.db.fetch(SQL["grants"], found.id)]


async def save_query(plane: ControlPlane, caller: Caller, mapping: str, body: SavedQueryBody) -> dict[str, Any]:
    found = await visible_mapping(plane, caller, mapping)
    name = body.name.strip()
    async with plane.core.db.transaction() as tx:
        if await tx.fetchval(SQL["count_saved_queries"], found.id) >= MOST_SAVED:
            raise ApiError(
                409, "too_many_saved_queries", f"A mapping keeps at most {MOST_SAVED} queries.", hint="Delete some."
            )
        row = await tx.fetchrow(SQL["save_query"], found.id, caller.owner, name, body.query)
        if row is None:
            raise ApiError(
                409,
                "name_taken",
                f"The mapping has a saved query '{name}' already.",
                hint="Choose another name, or delete that one.",
            )
        await audit(tx, caller.actor, "query_saved", f"mapping:{found.id}", details={"name": name})
    return dict(row)


async def saved_queries(
    plane: ControlPlane, caller: Caller, mapping: str, *, after: UUID | None = None, limit: int = 100
) -> Sequence[dict[str, Any]]:
    """Oldest first."""
    found = await visible_mapping(plane, caller, mapping)
    rows = await plane.core.db.fetch(SQL["saved_queries"], found.id, after or UUID(int=0), limit)
    return [dict(row) for row in rows]


async def drop_query(plane: ControlPlane, caller: Caller, mapping: str, query_id: str) -> None:
    found = await visible_mapping(plane, caller, mapping)
    async with plane.core.db.transaction() as tx:
        row = await tx.fetchrow(SQL["drop_saved_query"], path_id(query_id, "saved query"), found.id)
        if row is None:
            raise not_found("saved query")
        await audit(tx, caller.actor, "saved_query_deleted", f"mapping:{found.id}", details={"name": row["name"]})
