"""Runs the app with uvicorn. Signals are the caller's: it sets `should_exit`, and the server answers whoever waits."""

import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI

from paddock.api import app as apps
from paddock.config import Config

GRACE_SECONDS = 5


class Server(uvicorn.Server):
    """`app` answers here; `main` is the app whose long polls and streams end when this server is to stop."""

    def __init__(self, app: FastAPI, main: FastAPI | None = None) -> None:
        self.main = main or app
        config: Config = self.main.state.plane.config
        super().__init__(
            uvicorn.Config(
                app,
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=GRACE_SECONDS,
                # Behind a proxy that ends TLS: the scheme decides whether cookies are Secure.
                proxy_headers=True,
                forwarded_allow_ips=list(config.trusted_proxies),
            )
        )

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        apps.close(self.main)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Left to the process: `serve` and `up` have more to stop than this."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """A bound socket, so that port 0 has its number before anything is told about it."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind((host.strip("[]"), port))
    bound.setblocking(False)
    return bound
