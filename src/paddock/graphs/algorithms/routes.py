"""`/algo` of an instance. Routes only translate: what is allowed is said by `validating`, what happens by `executions`."""

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from paddock.graphs.algorithms.executions import Executions
from paddock.graphs.algorithms.shape import shape_of
from paddock.graphs.algorithms.shortest_path import End, ShortestPath, missing, shortest_path_of
from paddock.graphs.algorithms.table import ALGORITHMS, SHORTEST_PATH
from paddock.graphs.answers import data_response
from paddock.graphs.asking import JSON, LIMITS, TIMEOUT_MS, read_id
from paddock.graphs.databases import Current
from paddock.graphs.problems import Problem, invalid
from paddock.graphs.queries import Queries
from paddock.graphs.query import Asked, Query

MOST_BODY = 1 << 20
MOST_OWNER = 255

ReadBody = Callable[[Request, int], Awaitable[bytes]]


class Host(Protocol):
    """The instance, as far as these routes need it."""

    executions: Executions
    queries: Queries

    def require_ready(self) -> Current: ...


def algorithm_routes(host: Host, read_body: ReadBody) -> list[Route]:
    routes = AlgorithmRoutes(host, read_body)
    return [
        Route("/algo", routes.listed),
        Route("/algo/executions", routes.executions),
        Route("/algo/executions/{id}", routes.execution),
        Route("/algo/executions/{id}/cancel", routes.cancel, methods=["POST"]),
        Route(f"/algo/{SHORTEST_PATH}", routes.shortest_path, methods=["POST"]),
        Route("/algo/{name}", routes.start, methods=["POST"]),
    ]


class AlgorithmRoutes:
    def __init__(self, host: Host, read_body: ReadBody) -> None:
        self._host = host
        self._read_body = read_body

    async def listed(self, request: Request) -> Response:
        return data_response([algorithm.as_json() for algorithm in ALGORITHMS.values()])

    async def start(self, request: Request) -> Response:
        body = read_object(await self._read_body(request, MOST_BODY))
        id, owner = read_id("execution_id", body.pop("execution_id", None)), _owner(body.pop("owner", None))
        execution = self._host.executions.start(request.path_params["name"], id, owner, body)
        return data_response(execution.as_json(), 202)

    async def executions(self, request: Request) -> Response:
        return data_response([execution.as_json() for execution in self._host.executions.list()])

    async def execution(self, request: Request) -> Response:
        return data_response(self._host.executions.find(request.path_params["id"]).as_json())

    async def cancel(self, request: Request) -> Response:
        execution = await self._host.executions.cancel(read_id("execution_id", request.path_params["id"]))
        return data_response(execution.as_json())

    async def shortest_path(self, request: Request) -> Response:
        body = read_object(await self._read_body(request, MOST_BODY))
        id, owner = read_id("execution_id", body.pop("execution_id", None)), _owner(body.pop("owner", None))
        wanted = shortest_path_of(body, shape_of(self._host.require_ready().definitions))
        found = await self._rows(request, wanted.query(), wanted.parameters(), id, owner)
        if not found:
            for end in (wanted.source, wanted.target):
                await self._require(request, end, owner)
        return data_response(_path_json(wanted, found))

    async def _require(self, request: Request, end: End, owner: str | None) -> None:
        [[count]] = await self._rows(request, end.existence(), {end.field: end.key}, str(uuid.uuid4()), owner)
        if count == 0:
            raise missing(end)

    async def _rows(
        self, request: Request, text: str, parameters: dict[str, Any], id: str, owner: str | None
    ) -> list[Any]:
        """A statement of ours goes the way of everybody's: its turn, its time-out, its sandbox."""
        format, rows, _most, most_bytes = LIMITS[JSON]
        asked = Asked(text, parameters, format, JSON, TIMEOUT_MS[1] / 1000, rows, most_bytes, id, owner)
        query = self._host.queries.start(asked)
        collecting, leaving = asyncio.create_task(_collected(query)), asyncio.create_task(_gone(request))
        try:
            await asyncio.wait([collecting, leaving], return_when=asyncio.FIRST_COMPLETED)
            query.stop("disconnected")  # of one that has ended this says nothing any more
            found: list[Any] = json.loads(await collecting)["data"]["rows"]
            return found
        finally:
            leaving.cancel()
            collecting.cancel()


async def _collected(query: Query) -> bytes:
    pieces = []
    while (piece := await query.piece()) is not None:
        pieces.append(piece)
    return b"".join(pieces)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _path_json(wanted: ShortestPath, found: list[Any]) -> dict[str, Any]:
    path, hops = found[0] if found else (None, None)
    return {
        "algorithm": SHORTEST_PATH,
        "found": bool(found),
        "hops": hops,
        "path": path,
        "edge_types": list(wanted.edge_types),
        "max_hops": wanted.max_hops,
    }


def read_object(body: bytes) -> dict[str, Any]:
    """Nothing at all is an empty object: every algorithm has its defaults."""
    try:
        read = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise Problem(400, "invalid_json", "The body is not valid JSON.") from None
    if not isinstance(read, dict):
        raise invalid("body", "is not a JSON object.")
    return read


def _owner(value: object) -> str | None:
    if value is not None and (not isinstance(value, str) or len(value) > MOST_OWNER):
        raise invalid("owner", f"is text of at most {MOST_OWNER} characters.")
    return value
