"""Runs the app with uvicorn. Signals are the caller's: it calls `stop`, and the server answers whoever waits."""

import contextlib
import resource
import socket
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from paddock.api import app as apps
from paddock.api.connections import BoundedProtocol, Gate, Limits
from paddock.config import Config

# So long a server that stops waits for the answers under way, unless told otherwise.
GRACE_SECONDS = 5.0


class Server(uvicorn.Server):
    """One port. `first` answers there until `turn_to` names the app, which connections that are open then ask too."""

    def __init__(self, first: ASGIApp, config: Config, limits: Limits | None = None) -> None:
        self._answering = first
        self._main: FastAPI | None = None
        limits = limits or Limits(connections=config.max_connections)
        super().__init__(
            uvicorn.Config(
                self._answer,
                interface="asgi3",
                http=type("Protocol", (BoundedProtocol,), {"gate": Gate(limits)}),
                log_config=None,
                access_log=False,
                server_header=False,
                date_header=False,
                lifespan="off",
                ws="none",
                timeout_graceful_shutdown=int(GRACE_SECONDS),
                # Behind a proxy that ends TLS: the scheme decides whether cookies are Secure.
                proxy_headers=True,
                forwarded_allow_ips=list(config.trusted_proxies),
            )
        )

    def turn_to(self, app: FastAPI, main: FastAPI | None = None) -> None:
        """`main` is the app whose long polls and streams end when this server is to stop."""
        self._answering, self._main = app, main or app

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answering(scope, receive, send)

    def stop(self, grace: float = GRACE_SECONDS) -> None:
        """Takes nothing new; what is being answered has so many seconds."""
        self.config.timeout_graceful_shutdown = max(1, round(grace))
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._main is not None:
            apps.close(self._main)
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


def raise_file_limit(files: int) -> int:
    """Makes room for that many open files, as far as the system allows it; how many there may be now. Beyond that number
    no connection is accepted any more, and nobody is told."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return files
    most = files if hard == resource.RLIM_INFINITY else min(files, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most
