"""Ports for servers that tests start, kill and start again."""

import socket

_KEPT: list[socket.socket] = []


def own_port() -> int:
    """Of the loopback, and nobody else's while this process lives. A number that is only looked up may be another
    program's by the time a server wants it, or while it is down: even the number that a client of it connects from.
    Bound and not listened to, it still is free for a server that asks for SO_REUSEADDR, as all of ours do."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    kept.bind(("127.0.0.1", 0))
    _KEPT.append(kept)
    return int(kept.getsockname()[1])
