"""`paddock worker --once`: one job to its end, through all its turns, with its cleanup and follow-ups."""

from datetime import timedelta
from math import inf
from uuid import UUID

from paddock.clock import Clock
from paddock.jobs import wire
from paddock.worker.claiming import Claims
from paddock.worker.holding import Holding


class Once:
    def __init__(self, claims: Claims, holding: Holding, clock: Clock) -> None:
        self._claims = claims
        self._holding = holding
        self._clock = clock
        # Every job that ran here, and how its last turn here ended.
        self._last: dict[UUID, str] = {}
        holding.observer = self._note

    async def run(self, wait: timedelta | None = None) -> int:
        """Waits until there is a job, or with `wait` so long at most. 0 if it and everything that came of it completed, or
        nothing came in that time; else 1."""
        until = inf if wait is None else self._clock.monotonic() + wait.total_seconds()
        while True:
            # Asked for at the end of that time too: what came meanwhile is not left lying.
            left = max(until - self._clock.monotonic(), 0.0)
            answer = await self._claims.bring_one(only=list(self._last), wait_seconds=left)
            for job in answer.jobs:
                self._last[job.id] = "running"
            if not self._last and not left:
                return 0
            if self._last and not answer.jobs and not answer.open:
                return 0 if set(self._last.values()) == {"done"} else 1
            while len(self._holding):
                self._holding.freed.clear()
                await self._holding.freed.wait()

    def _note(self, job: wire.ClaimedJob, how: str) -> None:
        self._last[job.id] = how
