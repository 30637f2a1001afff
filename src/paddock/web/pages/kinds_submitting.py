"""A job of any kind that a person may submit: by a form made from its kind's schema, empty or filled in as another job was."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError, not_found
from paddock.api.kinds_seen import may_see_kind
from paddock.api.services.jobs import visible_job
from paddock.api.services.submitting import check_kind
from paddock.api.tokens import Caller, check_engine_role
from paddock.jobs.errors import Refused
from paddock.jobs.kinds import Kind
from paddock.jobs.model import LOW, NORMAL, URGENT, NewJob
from paddock.web import kind_form
from paddock.web.form_problems import status_of
from paddock.web.frame import back, form, page, plane_of, render
from paddock.web.job_actions import may_submit
from paddock.web.kind_form import Form


def routes() -> list[Route]:
    return [
        page("/kinds/{kind}/submit", show, PEOPLE),
        form("/kinds/{kind}/submit", submit, PEOPLE),
    ]


async def show(request: Request, caller: Caller) -> Response:
    kind = _kind(request, caller)
    asked = request.query_params.get("like")
    if asked is None:
        return await _show(request, caller, kind, kind_form.empty(kind))
    job = await visible_job(plane_of(request), caller, asked)
    if job.kind != kind.name:
        raise not_found("job")
    return await _show(request, caller, kind, kind_form.like(kind, job))


async def submit(request: Request, caller: Caller) -> Response:
    plane, kind = plane_of(request), _kind(request, caller)
    asked = kind_form.filled(kind, dict(await request.form()))
    try:
        payload = kind_form.payload_of(asked)
        role = asked["role"].strip() or None
        check_engine_role(caller, role)
        check_kind(plane, caller, kind.name, payload)
        new = NewJob(
            kind.name,
            payload,
            owner=caller.owner,
            role=role,
            priority=_priority(asked, caller),
            tags=kind_form.tags_of(asked),
        )
        [job] = (await plane.core.submit([new])).jobs
    except (ApiError, Refused) as error:
        return await _show(request, caller, kind, asked.refused(error), status=status_of(error))
    return back(request, f"/jobs/{job.id}", "This is the new job.")


def _priority(asked: Form, caller: Caller) -> int:
    text = asked["priority"] or str(NORMAL)
    known = [str(each) for each in range(URGENT if caller.operator else NORMAL, LOW + 1)]
    if text not in known:
        fields = [{"field": "priority", "message": "Priority above normal is for operators."}]
        raise ApiError(
            403, "priority_not_allowed", "Priority above normal is for operators.", details={"fields": fields}
        )
    return int(text)


def _kind(request: Request, caller: Caller) -> Kind:
    """One that may not be submitted has no form."""
    plane = plane_of(request)
    kind = plane.core.kinds.get(request.path_params["kind"])
    if kind is None or not may_see_kind(plane.config, caller, kind.name) or not may_submit(kind, caller):
        raise not_found("kind")
    return kind


async def _show(request: Request, caller: Caller, kind: Kind, asked: Form, *, status: int = 200) -> Response:
    return await render(request, caller, "kind_submit.html", status=status, kind=kind, form=asked)
