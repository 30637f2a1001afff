"""A control plane answers from its first second, before there is a database; and when it stops, queries end first."""

import asyncio
from datetime import timedelta
from typing import cast

import httpx2
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paddock.api.database_problems import UNREACHABLE
from paddock.api.server import Server, listen
from paddock.api.starting import Starting, at_the_edge
from paddock.config import Config
from paddock.serve import QUERIES_END_WITHIN, grace_left


async def test_it_lives_says_why_it_cannot_serve_and_then_serves_on_the_same_connection(app: FastAPI) -> None:
    starting = Starting(lambda: None)
    bound = listen("127.0.0.1", 0)
    bound.listen()
    config = Config()
    server = Server(at_the_edge(starting, config, "0.0.0.0"), config)
    task = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=60) as client:
            alive = await client.get("/health")
            assert (alive.status_code, alive.json()["data"]["status"]) == (200, "ok")
            assert (await client.get("/ready")).json()["error"]["code"] == "starting"

            starting.problem = UNREACHABLE
            assert (await client.get("/health")).json()["data"]["database"] == UNREACHABLE.message
            for path in ("/ready", "/api/jobs"):
                refused = await client.get(path)
                assert (refused.status_code, refused.json()["error"]["message"]) == (503, UNREACHABLE.message)
                assert {"retry-after", "x-request-id"} <= set(refused.headers)

            server.turn_to(app)
            assert (await client.get("/ready")).status_code == 200
    finally:
        server.stop()
        await task


async def test_a_query_under_way_is_answered_while_the_server_stops() -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        asked.set()
        await answer.wait()
        await PlainTextResponse("late")(scope, receive, send)

    bound = listen("127.0.0.1", 0)
    bound.listen()
    server = Server(slow, Config())
    task = asyncio.create_task(server.serve(sockets=[bound]))
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{bound.getsockname()[1]}", timeout=60) as client:
        query = asyncio.create_task(client.get("/"))
        async with asyncio.timeout(60):
            await asked.wait()
            server.stop(grace_left(QUERIES_END_WITHIN, 0))
            # Until the server waits for this answer alone.
            open_ones = server.server_state.connections
            while all(cast(HttpToolsProtocol, one).cycle.keep_alive for one in open_ones):  # noqa: ASYNC110  nothing tells
                await asyncio.sleep(0.01)
            answer.set()
            assert (await query).text == "late"
            await task


def test_a_query_has_a_minute_from_the_signal_on() -> None:
    assert grace_left(QUERIES_END_WITHIN, 0) == 60
    assert grace_left(QUERIES_END_WITHIN, 22) == 38, "the passes took the rest"
    assert grace_left(timedelta(0), 3) == 5, "on a person's own machine"
