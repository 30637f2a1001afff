from starlette.responses import Response

from guestbook.service import newest_guests
from paddock.api.access import PEOPLE
from paddock.api.auth import Asking
from paddock.api.guard import guarded_router
from paddock.api.pagination import page
from paddock.api.plane import ThePlane

router = guarded_router("guestbook", PEOPLE)


@router.get("/api/guestbook", summary="Who signed, newest first")
async def list_guests(plane: ThePlane, caller: Asking) -> Response:
    return page(await newest_guests(plane, caller), None)
