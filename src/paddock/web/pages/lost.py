"""Where there is no page: said in the dashboard's frame, to whoever came there with a browser."""

from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response

from paddock.api.auth import authenticate
from paddock.api.database_problems import database_problem
from paddock.api.errors import ApiError
from paddock.api.tokens import Caller
from paddock.web.frame import plane_of, problem

WORDS: Mapping[int, tuple[str, ...]] = {
    404: ("There is nothing at this address.",),
    405: ("There is nothing to see at this address.", "It only takes forms: go back to the page that has one."),
}


async def lost(request: Request, status: int) -> Response:
    """The answer at an address that no route has. The same for everybody: it tells nothing of what there is."""
    return await problem(request, await _caller(request), status, *WORDS[status])


async def _caller(request: Request) -> Caller | None:
    try:
        return await authenticate(request, plane_of(request).tokens)
    except ApiError:
        return None
    except Exception as error:
        if database_problem(error) is None:
            raise
        return None
