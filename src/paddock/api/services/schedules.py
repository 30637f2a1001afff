"""Making and changing schedules, whoever asks: a route, a page or a command only translates.

Operators have all schedules. Analysts have their own, of the kinds that are asked at each run what their owner may
(`Kind.allowed`): at most once a minute, not above normal priority, and so many of them as the installation allows.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from paddock.api.errors import ApiError, invalid_field
from paddock.api.plane import ControlPlane
from paddock.api.services.rights import check_caller
from paddock.api.services.submitting import check_kind
from paddock.api.tokens import Caller
from paddock.jobs import schedules
from paddock.jobs.enqueueing import IdempotencyKey
from paddock.jobs.errors import Refused
from paddock.jobs.kinds import Kind
from paddock.jobs.model import NORMAL, Job
from paddock.jobs.schedules import NewSchedule, Schedule

SHORTEST_OF_ANALYSTS = timedelta(minutes=1)


async def make(plane: ControlPlane, caller: Caller, new: NewSchedule) -> Schedule:
    """For the API and the dashboard alike."""
    await _check(plane, caller, new)
    most = None if caller.operator else plane.config.max_schedules_per_owner
    return await schedules.create(plane.core, new, actor=caller.actor, most=most)


async def change(plane: ControlPlane, caller: Caller, before: Schedule, changes: Mapping[str, Any]) -> Schedule:
    new = replace(before, **changes)
    if changes.keys() & {"kind", "payload"}:
        check_owner(plane, caller, before, new.kind)
        await _check(plane, caller, new)
    elif dict(changes) != {"enabled": False}:
        _check_theirs(plane, caller, new)
        _check_pace(caller, new)
    return await schedules.update(plane.core, before.name, changes, actor=caller.actor, scope=caller.scope)


async def run(
    plane: ControlPlane,
    caller: Caller,
    name: str,
    *,
    reason: str | None = None,
    idempotency: IdempotencyKey | None = None,
) -> Job:
    found = await schedules.get(plane.core.db, name, caller.scope)
    if found is not None:
        _check_theirs(plane, caller, found)
    return await schedules.run(
        plane.core, name, actor=caller.actor, reason=reason, idempotency=idempotency, scope=caller.scope
    )


def schedulable(plane: ControlPlane, caller: Caller) -> list[str]:
    """The kinds that they may schedule."""
    return sorted(kind.name for kind in plane.core.kinds if _may_schedule(caller, kind))


def _may_schedule(caller: Caller, kind: Kind) -> bool:
    if not caller.operator:
        return kind.allowed is not None
    return kind.submit is not None and (caller.role in kind.submit or caller.role == "admin")


async def _check(plane: ControlPlane, caller: Caller, new: NewSchedule) -> None:
    _check_kind(plane, caller, new)
    _check_pace(caller, new)
    await schedules.check(plane.core, new)
    await _check_payload(plane, caller, new)


def _check_kind(plane: ControlPlane, caller: Caller, new: NewSchedule) -> None:
    """To analysts all kinds but theirs look the same, whether there is one or not: some carry the name of a database."""
    mine = schedulable(plane, caller)
    if caller.operator:
        check_kind(plane, caller, new.kind, new.payload)
    elif new.kind not in mine:
        raise ApiError(
            403,
            "kind_not_allowed",
            f"A token of role '{caller.role}' may not schedule kind '{new.kind[:100]}'.",
            hint=f"You may schedule {', '.join(mine)}.",
        )


def _check_theirs(plane: ControlPlane, caller: Caller, schedule: NewSchedule) -> None:
    """Who was an operator may have schedules left that an analyst may only switch off or delete."""
    if not caller.operator and schedule.kind not in schedulable(plane, caller):
        raise ApiError(
            403,
            "kind_not_allowed",
            "This schedule was made with the rights of an operator.",
            hint="Switch it off or delete it, or ask an operator.",
        )


def _check_pace(caller: Caller, new: NewSchedule) -> None:
    if caller.operator:
        return
    if new.priority < NORMAL:
        raise ApiError(
            403,
            "priority_not_allowed",
            "Priority above normal (1 and 2) needs the role ops.",
            hint="Leave priority out, or use 3 or 4.",
            details={"fields": [{"field": "priority", "message": "Choose 3 or 4: above normal needs the role ops."}]},
        )
    if new.every is not None and new.every < SHORTEST_OF_ANALYSTS:
        raise invalid_field("every", "The interval must be at least a minute.")


async def _check_payload(plane: ControlPlane, caller: Caller, new: NewSchedule) -> None:
    """Whether they may have what the payload names, and then what only its kind can know: whether that is there."""
    kind = plane.core.kinds[new.kind]
    try:
        payload = kind.payload.model_validate(new.payload)  # `schedules.check` has refused what is none
        await check_caller(plane.core, plane.config, caller, kind, payload)
        if kind.check is not None:
            await kind.check(plane.core, plane.config, payload, new.owner)
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
