"""The answer to `POST /query`: streamed as the child encodes it, and given up when the client goes away.

The status is decided by the first piece. What fails later breaks the connection off, so that nobody takes a part for the
whole.
"""

import asyncio
from collections.abc import Mapping

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from paddock.graphs.problems import Problem
from paddock.graphs.query import Query


class BrokenOff(Exception):
    """The rest of an answer cannot be had. The server closes the connection without the end of the body."""


class QueryAnswer(Response):
    def __init__(self, query: Query) -> None:
        self._query = query
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = asyncio.create_task(self._answer(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait([answering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not answering.done():
                self._query.stop("disconnected")
        finally:
            leaving.cancel()
            if not answering.done():
                answering.cancel()
            self._query.stop("disconnected")  # of one that has ended this says nothing any more
            await asyncio.gather(leaving, return_exceptions=True)
        if answering.done() and not answering.cancelled():
            answering.result()

    async def _answer(self, send: Send) -> None:
        try:
            piece = await self._query.piece()
        except Problem as problem:
            await problem_response(problem)(_NO_SCOPE, _nothing, send)
            return
        media_type = self._query.asked.media_type
        headers = {
            "content-type": media_type,
            "x-content-type-options": "nosniff",
            "paddock-query": self._query.asked.id,
        }
        found = self._query.rows_found
        if found is not None and self._query.asked.format == "csv":  # the others say it at their end
            headers["paddock-rows"] = f"{min(found, self._query.asked.max_rows)} of {found}"
        await send({"type": "http.response.start", "status": 200, "headers": _raw(headers)})
        while piece is not None:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            try:
                piece = await self._query.piece()
            except Problem as problem:
                raise BrokenOff(problem.code) from None
        await send({"type": "http.response.body", "body": b""})


def problem_response(problem: Problem) -> Response:
    return Response(
        orjson.dumps(problem.body()), problem.status, headers=problem.headers, media_type="application/json"
    )


def data_response(data: object, status: int = 200) -> Response:
    return Response(orjson.dumps({"data": data}), status, media_type="application/json")


async def _gone(receive: Receive) -> None:
    """Returns when the client has gone away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _nothing() -> dict[str, object]:
    return {"type": "http.disconnect"}


_NO_SCOPE: dict[str, object] = {"type": "http"}


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
