"""Making and changing schedules, whoever asks: a route, a page or a command only translates."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.api.services.submitting import check_kind
from paddock.api.tokens import Caller
from paddock.jobs import schedules
from paddock.jobs.errors import Refused
from paddock.jobs.schedules import NewSchedule, Schedule


async def make(plane: ControlPlane, caller: Caller, new: NewSchedule) -> Schedule:
    """For the API and the dashboard alike."""
    check_kind(plane, caller, new.kind, new.payload)
    await schedules.check(plane.core, new)
    await _check_payload(plane, new)
    return await schedules.create(plane.core, new, actor=caller.actor)


async def change(plane: ControlPlane, caller: Caller, before: Schedule, changes: Mapping[str, Any]) -> Schedule:
    if changes.keys() & {"kind", "payload"}:
        new = replace(before, **changes)
        check_kind(plane, caller, new.kind, new.payload)
        check_owner(plane, caller, before, new.kind)
        await schedules.check(plane.core, new)
        await _check_payload(plane, new)
    return await schedules.update(plane.core, before.name, changes, actor=caller.actor)


async def _check_payload(plane: ControlPlane, new: NewSchedule) -> None:
    """What only its kind can know: whether what the payload names is there."""
    kind = plane.core.kinds[new.kind]
    if kind.check is None:
        return
    try:
        await kind.check(plane.core, plane.config, kind.payload.model_validate(new.payload), new.owner)
    except Refused as refused:
        fields = refused.details.get("fields") or [{"field": "payload", "message": refused.message}]
        status = 422 if refused.status in (400, 404) else refused.status
        details = {**refused.details, "fields": fields}
        raise Refused(refused.code, refused.message, hint=refused.hint, details=details, status=status) from None


def check_owner(plane: ControlPlane, caller: Caller, schedule: Schedule, kind: str) -> None:
    """It runs in its owner's name: what uses an engine is theirs alone to change."""
    known = plane.core.kinds.get(kind)
    if known is not None and known.uses is not None and schedule.owner != caller.owner:
        raise ApiError(
            403,
            "not_your_schedule",
            f"The schedule runs in the name of {schedule.owner}; only they may change what it does.",
            hint="Make a schedule of your own, or switch this one off.",
        )
