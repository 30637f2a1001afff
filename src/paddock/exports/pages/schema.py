"""One search box over the tables and columns of all engines that a person may see, and how fresh what it knows is."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.api.access import PEOPLE
from paddock.api.errors import ApiError
from paddock.api.tokens import Caller
from paddock.exports.schema import service
from paddock.web.frame import clean, page, plane_of, regions, render


def routes() -> list[Route]:
    return [page("/schema", show, PEOPLE)]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    wanted = clean(request.query_params.get("q") or "")[: service.LONGEST]
    within = "columns" if request.query_params.get("in") == "columns" else "tables"
    found: list[service.Match] = []
    problem: str | None = None
    if wanted and not regions(request):  # what was found stays as it was when it was asked for
        try:
            found = await service.search(plane, caller, wanted, within=within)
        except ApiError as refused:
            problem = refused.message
    return await render(
        request,
        caller,
        "schema.html",
        wanted=wanted,
        within=within,
        found=found,
        cut=len(found) == service.MOST_FOUND,
        problem=problem,
        engines=await service.stats(plane, caller),
    )
