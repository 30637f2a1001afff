"""What this control plane can run, and the switch that holds a kind back."""

from typing import Any

from starlette.responses import Response

from paddock.api.access import OPERATORS, PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented, documented_page
from paddock.api.durations import iso
from paddock.api.guard import guarded_router
from paddock.api.kinds_seen import may_see_kind
from paddock.api.pagination import answer, page
from paddock.api.plane import ControlPlane, ThePlane
from paddock.api.routes.changing import Reason
from paddock.api.tokens import Caller
from paddock.jobs import reading
from paddock.jobs.figures.overviews import KindSeen

router = guarded_router("kinds", OPERATORS)

KIND_EXAMPLE = {
    "name": "probe",
    "submit": ["admin", "ops"],
    "internal": False,
    "housekeeping": False,
    "serial": False,
    "may_repeat": True,
    "has_cleanup": True,
    "retry": {"first": "PT60S", "cap": "PT300S", "limit": 5, "cluster_limit": 50, "loss_limit": 5},
    "turn_timeout": None,
    "total_timeout": None,
    "stall_timeout": None,
    "patience": "PT0S",
    "grace": "PT2S",
    "offered": True,
    "scaled": False,
    "unoffered": False,
    "paused": False,
    "paused_at": None,
    "paused_by": None,
    "pause_reason": None,
    "pending": 0,
    "claimed": 1,
    "submitted": 0,
    "oldest_due": "PT0S",
}


@router.for_roles(PEOPLE).get(
    "/api/kinds",
    summary="Kinds, their policies, and whether a worker offers them",
    responses=documented_page(KIND_EXAMPLE),
)
async def list_kinds(plane: ThePlane, caller: Asking) -> Response:
    seen = await reading.kinds(plane.core.db)
    mine = [kind for kind in seen if may_see_kind(plane.config, caller, kind.name)]
    return page([_kind_json(plane, caller, kind) for kind in mine if caller.operator or not kind.internal], None)


@router.post("/api/kinds/{kind}/pause", summary="Claim nothing new of a kind", responses=documented(KIND_EXAMPLE))
async def pause_kind(kind: str, plane: ThePlane, caller: Asking, body: Reason | None = None) -> Response:
    await plane.core.pause(kind, actor=caller.actor, reason=None if body is None else body.reason)
    return await _one(plane, caller, kind)


@router.post("/api/kinds/{kind}/resume", summary="Claim it again", responses=documented(KIND_EXAMPLE))
async def resume_kind(kind: str, plane: ThePlane, caller: Asking, body: Reason | None = None) -> Response:
    await plane.core.resume(kind, actor=caller.actor, reason=None if body is None else body.reason)
    return await _one(plane, caller, kind)


async def _one(plane: ControlPlane, caller: Caller, name: str) -> Response:
    seen = await reading.kinds(plane.core.db)
    return answer(next(_kind_json(plane, caller, kind) for kind in seen if kind.name == name))


def _kind_json(plane: ControlPlane, caller: Caller, seen: KindSeen) -> dict[str, Any]:
    declared = plane.core.kinds.get(seen.name)
    shown: dict[str, Any] = {
        "name": seen.name,
        "submit": seen.submit,
        "internal": seen.internal,
        "housekeeping": seen.housekeeping,
        "serial": seen.serial,
        "may_repeat": seen.may_repeat,
        "has_cleanup": seen.has_cleanup,
        "retry": {
            "first": iso(seen.backoff_first),
            "cap": iso(seen.backoff_cap),
            "limit": seen.failure_limit,
            "cluster_limit": seen.cluster_limit,
            "loss_limit": seen.loss_limit,
        },
        "turn_timeout": iso(seen.turn_timeout),
        "total_timeout": iso(seen.total_timeout),
        "stall_timeout": iso(seen.stall_timeout),
        "patience": iso(seen.patience),
        "grace": None if declared is None else iso(declared.grace),
        "offered": seen.offered,
        "scaled": seen.scaled,
        "unoffered": seen.unoffered,
        "paused": seen.paused,
        "paused_at": seen.paused_at,
    }
    if caller.operator:  # The rest tells of other people and of their work.
        shown |= {
            "paused_by": seen.paused_by,
            "pause_reason": seen.pause_reason,
            "pending": seen.pending,
            "claimed": seen.claimed,
            "submitted": seen.submitted,
            "oldest_due": iso(seen.oldest_due),
        }
    return shown
