"""`/internal/ingest/...`: what the containers of a step ask of the control plane. Each request carries the token of its step."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec
import orjson
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from paddock.api.access import open_route
from paddock.api.errors import ApiError
from paddock.api.plane import ControlPlane
from paddock.ingest.transfer_files import PIECE
from paddock.ingest.transfers import SealBody, Transfer, refused, transfer_of

BELOW = "/internal/ingest/{run}/{batch}/{step}"
# Each holds a piece in memory, once as it comes and once as it is stored.
PIECES_AT_ONCE = 8
# Who is slower gives its place back and is asked to send the piece again.
PIECE_TAKES = timedelta(minutes=1)
Answer = Callable[[Request, Transfer], Awaitable[Response]]


def routes() -> list[Route]:
    """They need no token of ours: the transfer's own is asked for by each."""
    return [
        open_route(f"{BELOW}/inputs", _checked(list_inputs)),
        open_route(f"{BELOW}/inputs/{{name}}", _checked(read_input)),
        open_route(f"{BELOW}/outputs/{{draft}}/seal", _checked(seal), method="PUT"),
        open_route(f"{BELOW}/outputs/{{draft}}/{{name}}/{{piece}}", _checked(put), method="PUT"),
    ]


def _checked(answer: Answer) -> Callable[[Request], Awaitable[Response]]:
    async def checked(request: Request) -> Response:
        plane: ControlPlane = request.app.state.plane
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        path = request.path_params
        batch = _number(path["batch"])
        if scheme.lower() != "bearer" or batch is None:
            raise refused()
        return await answer(request, await transfer_of(plane, path["run"], batch, path["step"], token.strip()))

    return checked


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


async def list_inputs(request: Request, transfer: Transfer) -> Response:
    return JSONResponse({"inputs": [*transfer.inputs()]})


async def read_input(request: Request, transfer: Transfer) -> Response:
    content = await transfer.input(request.path_params["name"])
    return StreamingResponse(content, media_type="application/octet-stream")


async def put(request: Request, transfer: Transfer) -> Response:
    async with _places(request):
        return await _put(request, transfer)


def _places(request: Request) -> asyncio.Semaphore:
    state = request.app.state
    if not hasattr(state, "ingest_pieces"):
        state.ingest_pieces = asyncio.Semaphore(PIECES_AT_ONCE)
    places: asyncio.Semaphore = state.ingest_pieces
    return places


async def _put(request: Request, transfer: Transfer) -> Response:
    try:
        async with asyncio.timeout(PIECE_TAKES.total_seconds()):
            content = await _piece(request)
    except TimeoutError:
        raise ApiError(503, "transfer_slow", "The piece did not come in time; others wait for its place.") from None
    draft, name, piece = (request.path_params[part] for part in ("draft", "name", "piece"))
    number = _number(piece)
    if number is None:
        raise ApiError(404, "not_found", "There is no such piece.")
    await transfer.put(draft, name, number, bytes(content))
    return Response(status_code=204)


async def _piece(request: Request) -> bytearray:
    content = bytearray()
    async for part in request.stream():
        content += part
        if len(content) > PIECE:
            raise ApiError(413, "output_too_large", f"A piece has at most {PIECE:,} bytes.")
    return content


async def seal(request: Request, transfer: Transfer) -> Response:
    try:
        body = SealBody.model_validate(orjson.loads(await request.body()))
    except (ValidationError, orjson.JSONDecodeError, msgspec.MsgspecError):
        raise ApiError(422, "invalid", "The body does not fit: name the files with their pieces.") from None
    await transfer.seal(request.path_params["draft"], body)
    return Response(status_code=204)
