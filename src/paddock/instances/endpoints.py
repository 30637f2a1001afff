"""Where a running instance answers. Remembered for each generation: asking the runtime for every query would cost more than a
small query does."""

import contextlib
from uuid import UUID

from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.instances import finding
from paddock.instances.model import SQL
from paddock.instances.running_on import needed_runtime
from paddock.instances.talking import Endpoint, saved_address
from paddock.jobs.errors import InfrastructureError
from paddock.runtimes.runtime import Address

MOST_REMEMBERED = 1_000
_addresses: dict[UUID, Address] = {}


async def endpoint_of(plane: ControlPlane, id: UUID) -> Endpoint:
    """Raises 409 `instance_not_running` with its state, or 503 while it cannot be reached."""
    row = await plane.core.db.fetchrow(SQL["secret"], id)
    if row is None or row["status"] != "running":
        raise not_running("gone" if row is None else row["status"])
    address = _addresses.get(row["generation"]) or saved_address(row)
    if address is None:
        try:
            found = await needed_runtime(plane.config).get(row["pod_name"])
        except InfrastructureError:
            raise unreachable() from None
        if found is None or found.state != "up" or found.address is None:
            raise await lost(plane, id, row["generation"])
        address = found.address
        if len(_addresses) >= MOST_REMEMBERED:
            _addresses.clear()
        _addresses[row["generation"]] = address
    return Endpoint(address, row["generation"], row["token"])


async def lost(plane: ControlPlane, id: UUID, generation: UUID) -> ApiError:
    """What to say when it was refused or another generation answered: the table of ends decides at once."""
    _addresses.pop(generation, None)
    with contextlib.suppress(InfrastructureError):  # whoever runs it does not answer: then nobody knows
        await finding.look_after(plane.core, plane.config, id)
    row = await plane.core.db.fetchrow(SQL["secret"], id)
    if row is not None and row["status"] == "running":
        return unreachable()
    return not_running("gone" if row is None else row["status"])


def unreachable() -> ApiError:
    return ApiError(
        503,
        "instance_unreachable",
        "The instance does not answer at the moment.",
        hint="Try again in a moment.",
        headers={"Retry-After": "1"},
    )


def not_running(status: str) -> ApiError:
    hints = {
        "failed": "Its error says why; reopen it, or make another.",
        "stopping": "It is being deleted.",
        "gone": "It was deleted.",
    }
    return ApiError(
        409,
        "instance_not_running",
        f"The instance is {status}." if status != "gone" else "The instance is gone.",
        hint=hints.get(status, "Wait until it runs: GET /api/instances/{id}?wait=30"),
        details={"status": status},
    )
