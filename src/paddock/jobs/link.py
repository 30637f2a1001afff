"""The line between a worker and its control plane: over HTTP for `paddock worker`, direct for the one inside `serve`."""

from typing import Protocol
from uuid import UUID

from paddock.jobs import wire


class LinkDown(Exception):
    """No answer, or a 5xx: nothing is known about what was asked. Ask again, never give up a job for it."""


class SessionUnknown(Exception):
    """The control plane has no such session (pruned, or another database): register again."""


class LinkRefused(Exception):
    """A 4xx: asking again will not help. The message says what to do. 401 and 403 are cured from outside, so the
    worker goes on asking then."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class Link(Protocol):
    async def register(self, message: wire.Register) -> wire.Registered: ...

    async def claim(self, message: wire.Claim) -> wire.Claimed: ...

    async def beat(self, session: UUID, message: wire.Beat) -> wire.Verdicts: ...

    async def save(self, message: wire.Save) -> wire.Verdicts: ...

    async def finish(self, message: wire.Finish) -> wire.Verdicts: ...

    async def release(self, message: wire.Release) -> wire.Verdicts: ...

    async def logs(self, message: wire.Logs) -> None: ...

    async def close(self) -> None: ...
