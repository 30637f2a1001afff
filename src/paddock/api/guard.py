"""The route class of the public API: first who asks, then the body, then FastAPI."""

from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from paddock.api.auth import authorize
from paddock.api.bodies import JsonRequest, is_json
from paddock.api.errors import ApiError


class GuardedRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        path, takes_body = self.path, self.body_field is not None

        async def guarded(request: Request) -> Response:
            request.state.caller = await authorize(request, request.method, path)
            if takes_body:
                _check_media_type(request)
            return await handle(JsonRequest(request.scope, request.receive))

        return guarded


def _check_media_type(request: Request) -> None:
    has_body = request.headers.get("content-length", "0") != "0" or "transfer-encoding" in request.headers
    if has_body and not is_json(request.headers.get("content-type")):
        raise ApiError(
            415, "unsupported_media_type", "The body must be JSON.", hint="Send 'Content-Type: application/json'."
        )


def guarded_router(tag: str) -> APIRouter:
    return APIRouter(route_class=GuardedRoute, tags=[tag])
