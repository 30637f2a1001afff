"""Patience with a control plane that is away: ask again, for ever, and never give up a job for it."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeVar

import structlog

from paddock.clock import Clock
from paddock.jobs.link import LinkDown, LinkRefused

T = TypeVar("T")

FIRST_PAUSE = 0.1
REFUSED_PAUSE = 10.0
# Cured from outside: somebody mends the token.
CREDENTIALS = (401, 403)

log = structlog.get_logger(__name__)


class PatientCalls:
    """All questions of one worker share it, so that the first answer after an outage wakes the others."""

    def __init__(self, clock: Clock, longest_pause: timedelta) -> None:
        self._clock = clock
        self._longest = longest_pause.total_seconds()
        self._down_since: float | None = None
        self._refused = False
        self._back = asyncio.Event()

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """The answer, however long it takes. Raises `LinkRefused` and `SessionUnknown`, for those are answers."""
        pause = FIRST_PAUSE
        while True:
            try:
                answer = await question()
            except LinkDown as error:
                self.went_down(error)
                await self._pause(pause)
            except LinkRefused as error:
                if error.status not in CREDENTIALS:
                    self.came_back()
                    raise
                self.was_refused(error)
                await self._clock.sleep(REFUSED_PAUSE * random.uniform(0.8, 1.2))
            else:
                self.came_back()
                return answer
            pause = min(pause * 2, self._longest)

    def went_down(self, error: LinkDown) -> None:
        if self._down_since is None:
            self._down_since = self._clock.monotonic()
            self._back.clear()
            log.warning("control_plane_unreachable", error=str(error), doing="running jobs go on; asking again")

    def was_refused(self, error: LinkRefused) -> None:
        if not self._refused:
            self._refused = True
            log.error(
                "control_plane_refused",
                error=str(error),
                status=error.status,
                hint="Give this worker a token of role 'worker' that allows its kinds: `paddock tokens create "
                "--role worker --name NAME`, then set PADDOCK_TOKEN or PADDOCK_TOKEN_FILE. Running jobs go on meanwhile.",
            )

    def came_back(self) -> None:
        self._refused = False
        if self._down_since is not None:
            log.info("control_plane_back", after_seconds=round(self._clock.monotonic() - self._down_since, 1))
            self._down_since = None
            self._back.set()

    async def _pause(self, seconds: float) -> None:
        """Until the time is over or another question was answered; a little more, so that not all ask at once."""
        waits = {
            asyncio.ensure_future(self._clock.sleep(seconds * random.uniform(0.5, 1.0))),
            asyncio.ensure_future(self._back.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._back.is_set():
            await self._clock.sleep(random.uniform(0.01, 0.1))
