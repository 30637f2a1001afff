"""`/health`, `/ready` and `/metrics` of a worker. Served by the supervisor's loop, so an answer is itself a sign of life."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from paddock.worker.supervisor import Worker


def application(worker: Worker) -> web.Application:
    async def health(_: web.Request) -> web.Response:
        return _answer(worker.healthy, "alive", "The supervisor's loop has not turned for a while.")

    async def ready(_: web.Request) -> web.Response:
        return _answer(
            worker.ready, "ready", "Not registered, no beat acknowledged within the lease, or shutting down."
        )

    async def metrics(_: web.Request) -> web.Response:
        body, content_type = worker.metrics.render()
        return web.Response(body=body, headers={"Content-Type": content_type})

    app = web.Application()
    app.router.add_get("/health", health)
    app.router.add_get("/ready", ready)
    app.router.add_get("/metrics", metrics)
    return app


def _answer(good: bool, status: str, why_not: str) -> web.Response:
    if good:
        return web.json_response({"data": {"status": status}})
    error = {"code": f"not_{status}", "message": why_not, "details": {}}
    return web.json_response({"error": error}, status=503)


@asynccontextmanager
async def serve_health(worker: Worker, port: int, host: str = "0.0.0.0") -> AsyncIterator[int]:  # noqa: S104 - probes come from outside the pod
    """Gives the port it listens on, which matters when asked for port 0."""
    runner = web.AppRunner(application(worker), access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()
