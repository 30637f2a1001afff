"""Exports, mappings, snapshots and engines by their name or id."""

from functools import partial

from paddock.api.finding import Found, Sought, configured, rows
from paddock.api.plane import ControlPlane
from paddock.api.tokens import Caller
from paddock.exports import mappings, plain, snapshot_states
from paddock.exports.snapshot_states import Snapshot
from paddock.jobs.model import JobId


async def find(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    engines = [name for name in plane.config.engines if caller.may_use("engines", name)]
    return [
        *await _exports(plane, caller, sought),
        *await _snapshots(plane, caller, sought),
        *await _mappings(plane, caller, sought),
        *configured("engine", engines, "/engines/{}", sought),
    ]


async def _exports(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    page = partial(plain.page, plane.core.db, caller.scope)
    seen = await rows(sought, page, containing=partial(plain.called, plane.core.db, caller.scope))
    return [
        Found(
            "export",
            str(one.id),
            one.name or "",
            f"/exports/{one.id}",
            one.shown_status,
            one.job_id if one.job is None else one.job.id,
        )
        for one in seen
    ]


async def _snapshots(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    seen = await rows(sought, partial(snapshot_states.page, plane.core.db, caller.scope))
    return [
        Found(
            "snapshot",
            str(one.id),
            one.name,
            f"/snapshots/{one.id}",
            one.status,
            await _job_of(plane, one) if sought.exactly else None,
        )
        for one in seen
    ]


async def _job_of(plane: ControlPlane, snapshot: Snapshot) -> JobId | None:
    """The job of a part that failed, else of one that is at work, else of the last."""
    parts = await snapshot_states.parts(plane.core.db, snapshot)
    ranks = {"failed": 0, "cancelled": 1, "claimed": 2, "submitted": 2, "pending": 3}
    parts.sort(key=lambda part: ranks.get(part.status, 4))
    return parts[0].job_id if parts else None


async def _mappings(plane: ControlPlane, caller: Caller, sought: Sought) -> list[Found]:
    seen = await rows(sought, partial(mappings.page, plane.core.db, caller.scope))
    return [Found("mapping", str(one.id), one.name, f"/mappings/{one.id}", f"version {one.version}") for one in seen]
