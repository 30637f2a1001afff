from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from guestbook.service import newest_guests
from guestbook.settings import GuestbookSettings
from paddock.api.access import PEOPLE
from paddock.api.tokens import Caller
from paddock.web.frame import page, plane_of, render


def routes() -> list[Route]:
    return [page("/guestbook", show, PEOPLE)]


async def show(request: Request, caller: Caller) -> Response:
    plane = plane_of(request)
    greeting = plane.config.of(GuestbookSettings).greeting
    return await render(request, caller, "guestbook.html", greeting=greeting, guests=await newest_guests(plane, caller))
