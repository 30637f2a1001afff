"""One query: what was asked, the pieces of its answer on their way to the client, and how it ended."""

import asyncio
import time
import uuid
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.graphs.problems import Problem

PIECES_AHEAD = 4

Reason = Literal["timeout", "cancelled", "disconnected", "stopping"]


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client wants. `media_type` is what the child has to say of its answer."""

    text: str
    parameters: dict[str, Any]
    format: Literal["json", "csv", "arrow"]
    media_type: str
    timeout: float
    max_rows: int
    max_bytes: int
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    owner: str | None = None


class Query:
    """One query from its question to its end. Its answer is read with `piece`."""

    def __init__(self, asked: Asked) -> None:
        self.asked = asked
        self.asked_at = time.time()
        self.began = time.monotonic()
        self.deadline = self.began + asked.timeout
        self.state: Literal["waiting", "running"] = "waiting"
        self.stopped: Reason | None = None
        self.stopping = asyncio.Event()
        # As the child says before the first piece; None: it did not say it.
        self.rows_found: int | None = None
        self.ended: Problem | dict[str, Any] | None = None
        self._pieces: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    def stop(self, reason: Reason) -> None:
        if self.stopped is None:
            self.stopped = reason
            self.stopping.set()
            self._room.set()

    def restart_reason(self) -> str:
        """What is said of the engine when this query does not hear that it is to stop."""
        return "timeout" if self.stopped == "timeout" else "cancelled"

    async def piece(self) -> bytes | None:
        """The next bytes of the answer; None when it is complete. What was answered instead is raised."""
        while not self._pieces:
            if isinstance(self.ended, Problem):
                raise self.ended
            if self.ended is not None:
                return None
            self._news.clear()
            await self._news.wait()
        piece = self._pieces.popleft()
        self._room.set()
        return piece

    async def put(self, piece: bytes) -> None:
        """Waits while the client is behind. Once the query is to stop, nobody wants it any more."""
        while len(self._pieces) >= PIECES_AHEAD and self.stopped is None:
            self._room.clear()
            await self._room.wait()
        if self.stopped is None:
            self._pieces.append(piece)
            self._news.set()
            # A client that reads is given the time again: it began to get its answer.
            self.deadline = time.monotonic() + self.asked.timeout

    def end(self, how: Problem | dict[str, Any]) -> None:
        if self.ended is None:
            self.ended = how
            self._news.set()
