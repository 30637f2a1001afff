"""A server that answers what a test says, one answer after the other, and remembers what it was asked."""

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx2

from paddock.client import Client

ID = "019a8b1e-4c40-7000-9d6e-6f1d3c0a51e7"
Handler = Callable[[httpx2.Request], httpx2.Response]


@dataclass
class Answers:
    """Each answer is for the next request, whatever that is; the last one is for all that follow."""

    answers: Iterable[httpx2.Response | Exception | Handler]
    asked: list[httpx2.Request] = field(default_factory=list)
    _left: Iterator[httpx2.Response | Exception | Handler] = field(init=False)
    _last: httpx2.Response | Exception | Handler = field(init=False)

    def __post_init__(self) -> None:
        self._left = iter(self.answers)

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        with contextlib.suppress(StopIteration):
            self._last = next(self._left)
        if isinstance(self._last, Exception):
            raise self._last
        return self._last if isinstance(self._last, httpx2.Response) else self._last(request)

    def client(self, patience: float = 60.0) -> Client:
        return Client("http://server", "token", patience=patience, transport=httpx2.MockTransport(self))

    @property
    def lines(self) -> list[str]:
        return [f"{request.method} {request.url.path}" for request in self.asked]

    def body(self, number: int = -1) -> Any:
        return json.loads(self.asked[number].content)


def data(found: Any, status: int = 200) -> Handler:
    return lambda _: httpx2.Response(status, json={"data": found, "next_cursor": None})


def refusal(status: int, code: str, *, headers: dict[str, str] | None = None, **more: Any) -> Handler:
    error = {"code": code, "message": f"It said {code}.", "details": {}, **more}
    return lambda _: httpx2.Response(status, json={"error": error}, headers=headers)


def instance(status: str, **more: Any) -> dict[str, Any]:
    return {
        "id": ID,
        "name": "flights",
        "owner": "ada",
        "status": status,
        "error": None,
        "progress": None,
        "ttl": "PT86400S",
        "created_at": "2026-11-18T09:00:00Z",
        "started_at": None,
        "expires_at": None,
        **more,
    }
