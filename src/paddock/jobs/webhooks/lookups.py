"""Looking up the names of receivers, each in a thread of its own.

A look-up cannot be cancelled, and one whose server says nothing takes its thread for half a minute and longer, past the end
of the request it was for. The event loop has four threads for all look-ups of the process: four names that hang would keep
every other receiver waiting, and the connection to the database too. So none of its threads is used, an owner has a bounded
number at once and each of its names fewer, and no thread keeps the process from ending.
"""

import asyncio
import socket
import threading
from collections import Counter
from contextlib import suppress

from aiohttp.abc import AbstractResolver, ResolveResult

from paddock.jobs.errors import TransientResourceError

# An owner has no more deliveries than ten at once; what is beyond that hangs for deliveries that have given up.
MOST_OF_OWNER = 20
MOST_OF_NAME = 5

_counting = threading.Lock()
_running: Counter[tuple[str, str]] = Counter()


class Lookups(AbstractResolver):
    """Asks the system's resolver, on account of one owner."""

    def __init__(self, owner: str) -> None:
        self._owner = owner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[list[ResolveResult]] = loop.create_future()

        def tell(found: list[ResolveResult] | BaseException) -> None:
            if answer.done():
                return  # whoever asked has given up
            if isinstance(found, BaseException):
                answer.set_exception(found)
            else:
                answer.set_result(found)

        def look_up() -> None:
            found: list[ResolveResult] | BaseException
            try:
                found = _look_up(host, port, family)
            except Exception as problem:  # whatever it is, it is the asker's to hear
                found = problem
            finally:
                _end(self._owner, host)
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(tell, found)

        _begin(self._owner, host)
        try:
            threading.Thread(target=look_up, name="looks up a receiver", daemon=True).start()
        except BaseException:
            _end(self._owner, host)
            raise
        return await answer

    async def close(self) -> None:
        """Nothing is kept."""


def _begin(owner: str, host: str) -> None:
    with _counting:
        if _running[owner, host] >= MOST_OF_NAME or _running[owner, ""] >= MOST_OF_OWNER:
            raise TransientResourceError(
                f"{host} was not looked up: {_running[owner, '']} look-ups of receivers of the same owner have no answer yet.",
                code="receiver_unreachable",
                hint="Check the names in the owner's webhooks, and the DNS server of the control plane.",
            )
        _running[owner, host] += 1
        _running[owner, ""] += 1


def _end(owner: str, host: str) -> None:
    with _counting:
        for key in ((owner, host), (owner, "")):
            _running[key] -= 1
            if not _running[key]:
                del _running[key]


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, family=family, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            # With the interface of a link-local address, which `address[0]` alone does not have.
            host=socket.getnameinfo(address, socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)[0],
            port=port,
            family=known,
            proto=proto,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for known, _, proto, _, address in found
    ]
