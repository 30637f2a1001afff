"""Ports for servers that tests start and that cannot choose one themselves."""

import fcntl
import random
import socket
import tempfile
from pathlib import Path
from typing import IO

# Below what the system gives away by itself: nobody takes one between now and the server's start, or its restart.
GIVEN = range(10_000, 32_000)
# Not the common one: a test may have seeded it.
_DICE = random.SystemRandom()
# A port belongs to the process that drew it until that process ends, whether a server listens on it yet or not:
# several test processes draw at once, and a server binds its ports seconds after they were drawn.
_OWNED: list[IO[str]] = []


def free_ports(count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        port = _DICE.choice(GIVEN)
        if _own(port) and _is_free(port):
            found.append(port)
    return found


def _own(port: int) -> bool:
    folder = Path(tempfile.gettempdir()) / "paddock-test-ports"
    folder.mkdir(exist_ok=True)
    claim = (folder / str(port)).open("w")
    try:
        fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        claim.close()
        return False
    _OWNED.append(claim)
    return True


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
