"""Mappings, snapshots and instances by the names that people gave them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from paddock.client.errors import Ambiguous, NotFound

if TYPE_CHECKING:
    from paddock.client.jobs import JobsClient

# A name, an id, or the thing itself as an earlier answer had it.
Reference = str | Mapping[str, Any]

MOST_LISTED = 100
MOST_NAMED = 10


def id_of(client: "JobsClient", noun: str, reference: Reference, *, status: str | None = None) -> str:
    """The id. Where several have the name, the one that is in this `status`."""
    if not isinstance(reference, str):
        return str(reference["id"])
    if is_id(reference):
        return str(UUID(reference))
    found = list(client.pages(f"/api/{noun}s", most=MOST_LISTED, name=reference))
    if not found:
        raise NotFound(404, "not_found", f"There is no {noun} '{reference}'.")
    preferred = [one for one in found if status is not None and one["status"] == status]
    if len(found) > 1 and len(preferred) != 1:
        told = "\n".join(f"{one['id']}  {one['owner']}  {one['created_at']}" for one in found[:MOST_NAMED])
        raise Ambiguous(422, "ambiguous", f"There is more than one {noun} '{reference}': name it by its id.", hint=told)
    return str((preferred or found)[0]["id"])


def is_id(text: str) -> bool:
    try:
        UUID(text)
    except ValueError:
        return False
    return True


def given(**fields: Any) -> dict[str, Any]:
    """Those that somebody named: what is left out is decided by the server."""
    return {name: value for name, value in fields.items() if value is not None}
