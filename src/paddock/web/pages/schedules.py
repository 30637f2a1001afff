"""Jobs that make themselves due: when next, how the last run went, run now, on and off."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.tokens import Caller
from paddock.jobs import schedules
from paddock.web.frame import back, field, form, page, plane_of, render

MOST = 500


def routes() -> list[Route]:
    return [
        page("/schedules", show),
        form("/schedules/{name}/run", run),
        form("/schedules/{name}/switch", switch),
        form("/schedules/{name}/delete", delete),
    ]


async def show(request: Request, caller: Caller) -> Response:
    found = await schedules.page(plane_of(request).core.db, limit=MOST)
    found.sort(key=lambda schedule: (schedule.internal, schedule.name))
    return await render(request, caller, "schedules.html", schedules=found)


async def run(request: Request, caller: Caller) -> Response:
    job = await schedules.run(plane_of(request).core, request.path_params["name"], actor=caller.actor)
    return back(request, f"/jobs/{job}", f"{request.path_params['name']} made this job.")


async def switch(request: Request, caller: Caller) -> Response:
    name, enabled = request.path_params["name"], await field(request, "enabled") == "on"
    await schedules.update(plane_of(request).core, name, {"enabled": enabled}, actor=caller.actor)
    return back(request, "/schedules", f"{name} is switched {'on' if enabled else 'off'}.")


async def delete(request: Request, caller: Caller) -> Response:
    name = request.path_params["name"]
    await schedules.delete(plane_of(request).core, name, actor=caller.actor)
    return back(request, "/schedules", f"{name} is deleted; the jobs it made stay.")
