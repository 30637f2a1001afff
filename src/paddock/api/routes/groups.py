"""Jobs that belong together, counted."""

from dataclasses import asdict

from starlette.responses import Response

from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.documenting import documented
from paddock.api.errors import not_found
from paddock.api.guard import guarded_router
from paddock.api.ids import path_id
from paddock.api.pagination import answer
from paddock.api.plane import ThePlane
from paddock.jobs import grouping
from paddock.log import masked

router = guarded_router("groups", PEOPLE)

GROUP_ID = "019a8b1e-4c20-7000-8a10-0b1c2d3e4f50"
GROUP_EXAMPLE = {
    "id": GROUP_ID,
    "kind": "probe",
    "owner": "ada",
    "total": 12,
    "open": 3,
    "failed": 1,
    "cancelled": 0,
    "completed": 8,
    "sealed": True,
    "data": {},
    "created_at": "2026-11-15T09:30:00Z",
    "ended_at": None,
    "final": False,
    "hook_due": False,
    "links": {"self": f"/api/groups/{GROUP_ID}", "jobs": f"/api/jobs?group={GROUP_ID}"},
}


@router.get("/api/groups/{group_id}", summary="A group's counters", responses=documented(GROUP_EXAMPLE))
async def get_group(group_id: str, plane: ThePlane, caller: Asking) -> Response:
    group = await grouping.get(plane.core.db, path_id(group_id, "group"))
    if group is None or not caller.sees(group.owner):
        raise not_found("group")
    own = f"/api/groups/{group.id}"
    return answer(
        {
            **asdict(group),
            "data": masked(group.data),
            "completed": group.completed,
            "links": {"self": own, "jobs": f"/api/jobs?group={group.id}"},
        }
    )
