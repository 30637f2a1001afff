"""The port it answers on."""

import socket
from typing import TYPE_CHECKING

from paddock.up.errors import UpError

if TYPE_CHECKING:
    from paddock.config import Config

LOOPBACK = "127.0.0.1"
PORTS_TRIED = 100


def choose_port(config: "Config") -> int:
    """The one that was asked for; else 8080 or the next that is free."""
    host = config.host or LOOPBACK
    if config.source("port") != "default":
        if config.port and not _is_free(host, config.port):
            raise UpError(f"Port {config.port} is taken by another program: choose one with --port N.")
        return config.port or _any_port(host)
    for port in range(config.port, config.port + PORTS_TRIED):
        if _is_free(host, port):
            return port
    return _any_port(host)


def _is_free(host: str, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _any_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])
