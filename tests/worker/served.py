"""A plane behind HTTP, and a worker in a process of its own that speaks to it."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
from aiohttp import web

from paddock.jobs import wire
from paddock.jobs.link import LinkDown, LinkRefused, SessionUnknown
from paddock.worker.health import serve_health
from paddock.worker.link import HttpLink
from paddock.worker.processes import ProcessRunners, RunnerOptions
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker
from tests.worker.kinds import KINDS
from tests.worker.plane import Plane

TOKEN = "worker-token"

MESSAGES: dict[str, type[wire.Struct]] = {
    "sessions": wire.Register,
    "claim": wire.Claim,
    "save": wire.Save,
    "finish": wire.Finish,
    "release": wire.Release,
    "logs": wire.Logs,
}


def application(plane: Plane, dress: Callable[[Any], Any] | None = None) -> web.Application:
    async def call(request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return problem(401, "unauthorized")
        try:
            answer = await answered(request)
        except SessionUnknown:
            return problem(404, "session_unknown")
        except LinkRefused as error:
            return problem(error.status or 400, "refused")
        except LinkDown:
            return problem(503, "away")
        body = msgspec.json.encode(answer)
        if dress is not None:
            body = msgspec.json.encode(dress(msgspec.json.decode(body)))
        return web.Response(body=body, content_type="application/json")

    async def answered(request: web.Request) -> Any:
        body = await request.read()
        if "session" in request.match_info:
            return await plane.beat(UUID(request.match_info["session"]), msgspec.json.decode(body, type=wire.Beat))
        name = request.path.rpartition("/")[2]
        message = msgspec.json.decode(body, type=MESSAGES[name])
        return await getattr(plane, "register" if name == "sessions" else name)(message)

    app = web.Application()
    app.router.add_post("/internal/sessions", call)
    app.router.add_post("/internal/sessions/{session}/beat", call)
    for name in ("claim", "save", "finish", "release", "logs"):
        app.router.add_post(f"/internal/jobs/{name}", call)
    return app


def problem(status: int, code: str) -> web.Response:
    return web.json_response({"error": {"code": code, "message": f"It is {code}.", "details": {}}}, status=status)


@asynccontextmanager
async def served(plane: Plane, dress: Callable[[Any], Any] | None = None) -> AsyncIterator[str]:
    """`dress` makes of each answer what another version of the control plane would have sent."""
    runner = web.AppRunner(application(plane, dress), shutdown_timeout=0.1, handler_cancellation=True)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def main(url: str) -> int:
    worker = Worker(
        link=HttpLink(url, TOKEN),
        kinds=KINDS,
        runners=ProcessRunners(RunnerOptions(kinds="tests.worker.kinds:KINDS")),
        settings=Settings(worker_id="outside", empty_backoff=timedelta(seconds=0.2)),
        version="0",
    )
    async with serve_health(worker, 0, "127.0.0.1") as port:
        print(port, flush=True)
        return await worker.run(signals=True)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[1])))
