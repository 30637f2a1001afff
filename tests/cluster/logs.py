"""The part of a kubelet that the API server asks for the logs of a pod."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from tests.cluster.server import Cluster


@asynccontextmanager
async def log_server(cluster: Cluster, folder: Path) -> AsyncIterator[int]:
    """The port at which it answers; a node names it. `folder` holds the log of each pod by the pod's name."""

    async def show(request: web.Request) -> web.Response:
        with contextlib.suppress(FileNotFoundError):
            return web.Response(body=_part(folder / f"{request.match_info['pod']}.log", request.query))
        return web.Response(status=404, text="the pod has no log")

    app = web.Application()
    app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", show)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*cluster.server_certificate)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _part(log: Path, query: Mapping[str, str]) -> bytes:
    found = log.read_bytes()
    if "tailLines" in query:
        found = b"".join(found.splitlines(keepends=True)[-int(query["tailLines"]) :])
    return found[: int(query["limitBytes"])] if "limitBytes" in query else found
