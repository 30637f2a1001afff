"""Which jobs a caller may make and repeat, whoever asks: a route, a page or a command only translates."""

from collections.abc import Collection, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from paddock.api.errors import ApiError
from paddock.api.parts import check_part, no_parts_of
from paddock.api.plane import ControlPlane
from paddock.api.tokens import EVERYTHING, Caller, check_engine_role, includes, usable_names
from paddock.capability import grants
from paddock.config import Config
from paddock.jobs import bulk
from paddock.jobs.kinds import Kind
from paddock.jobs.model import Job


def check_kind(plane: ControlPlane, caller: Caller, name: str, payload: Mapping[str, Any]) -> None:
    """An unknown kind is the core's to refuse. An internal one looks the same to those who may not know of it."""
    kind = plane.core.kinds.get(name)
    if kind is None:
        return
    if kind.submit is None:
        raise ApiError(403, "kind_internal", f"Kind '{name}' is internal: only Paddock itself makes such jobs.")
    if caller.role not in kind.submit and caller.role != "admin":
        raise ApiError(
            403,
            "kind_not_allowed",
            f"A token of role '{caller.role}' may not submit kind '{name}'.",
            details={"roles": sorted(kind.submit)},
        )
    _check_raw(plane.config, caller, kind, payload)


def _check_raw(config: Config, caller: Caller, kind: Kind, payload: Mapping[str, Any]) -> None:
    """A payload that is none is the core's to refuse."""
    try:
        read = kind.payload.model_validate(payload)
    except ValidationError:
        return
    check_uses(config, caller, kind, read)


def check_uses(config: Config, caller: Caller, kind: Kind, payload: BaseModel) -> None:
    """What a payload names is checked like the same name in a route."""
    if kind.uses is None:
        return
    uses = kind.uses(payload)
    names = usable_names(config, caller)
    granted = {grant.what: names[grant.name] for grant in grants()}
    for what, name in uses:
        if not includes(granted.get(what, ()), name):
            raise ApiError(
                403,
                f"{what.replace(' ', '_')}_not_allowed",
                f"This token may not use the {what} '{name}'." if name else f"Name the {what}.",
                hint="Ask for it to be granted to your token.",
            )


def check_retry(plane: ControlPlane, caller: Caller, job: Job) -> None:
    """What it runs under and with may have been taken from them since."""
    if caller.operator:
        return
    check_part(plane, caller, job)
    check_engine_role(caller, job.role)
    kind = plane.core.kinds.get(job.kind)
    if kind is not None:
        _check_raw(plane.config, caller, kind, job.payload)
    if job.kind == bulk.BULK.name and not bulk.may_repeat(job, rights_of(plane, caller), caller.scope):
        raise ApiError(
            403,
            bulk.NOT_REPEATED,
            "This bulk job was asked for with rights that your token does not have.",
            hint="Submit a new one: `POST /api/jobs/retry` or `POST /api/jobs/cancel` with the same filter.",
        )


def rights_of(plane: ControlPlane, caller: Caller) -> bulk.Rights:
    """What they may do in bulk: as much as to one job after the other."""

    def usable(granted: Collection[str]) -> list[str] | None:
        return None if caller.operator or EVERYTHING in granted else sorted(granted)

    granted = {grant: usable(names) for grant, names in usable_names(plane.config, caller).items()}
    return bulk.Rights.model_validate({**granted, "no_parts_of": sorted(no_parts_of(plane.config, caller))})
