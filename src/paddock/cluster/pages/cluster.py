"""The cluster: whose it is, what of ours runs there, and what is wrong with it."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import ADMINS, OPERATORS
from paddock.api.tokens import Caller
from paddock.cluster import overview, service
from paddock.cluster.overview import Overview
from paddock.runtimes.diagnosis import who_mends
from paddock.web.frame import back, field, form, page, plane_of, render
from paddock.web.words import plural


def routes() -> list[Route]:
    return [page("/cluster", show, OPERATORS), form("/cluster/adopt", adopt, ADMINS)]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    found = await overview.look(plane.core.db, plane.config)
    said = sentence(found)
    return await render(request, caller, "cluster.html", cluster=found, sentence=said, who_mends=who_mends)


async def adopt(request: Request, caller: Caller) -> Response:
    fresh = await field(request, "fresh") == "on"
    reason = await field(request, "reason")
    await service.adopt(plane_of(request).config, actor=caller.actor, reason=reason, fresh=fresh)
    return back(request, "/cluster", "This database and this cluster belong together now.")


def sentence(found: Overview | None) -> str:
    if found is None:
        return "Nothing of this control plane runs on a cluster."
    if found.problem is not None and found.standing is None:
        return "The cluster could not be looked at."
    if found.standing is not None and found.standing.mismatch is not None:
        return "This database and this cluster do not belong together: nothing is started, deleted or declared missing."
    unseen = "" if found.problem is None else " The namespace of steps could not be looked at."
    # A Job that long has no pod is wrong too where nothing says why.
    wrong = sum(row.is_wrong for row in found.rows)
    if not found.rows:
        return f"Nothing of ours runs there now.{unseen}"
    told = f"{plural(len(found.rows), 'pod or Job', 'pods and Jobs')} of ours"
    return f"{told}; something is wrong with {wrong}.{unseen}" if wrong else f"{told}, and nothing is wrong.{unseen}"
