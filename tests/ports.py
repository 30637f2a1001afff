"""Ports for servers that tests start and that cannot choose one themselves."""

import random
import socket
from contextlib import ExitStack

# Below what the system gives away by itself: nobody takes one between now and the server's start, or its restart.
GIVEN = range(10_000, 32_000)
# Not the common one: a test may have seeded it.
_DICE = random.SystemRandom()


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        found: list[int] = []
        while len(found) < count:
            port = _DICE.choice(GIVEN)
            try:
                held.enter_context(socket.socket()).bind(("127.0.0.1", port))
            except OSError:
                continue
            found.append(port)
        return found
