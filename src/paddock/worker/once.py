"""`paddock worker --once`: one job to its end, through all its turns, with its cleanup and follow-ups."""

from uuid import UUID

from paddock.jobs import wire
from paddock.worker.claiming import Claims
from paddock.worker.holding import Holding


class Once:
    def __init__(self, claims: Claims, holding: Holding) -> None:
        self._claims = claims
        self._holding = holding
        # Every job that ran here, and how its last turn here ended.
        self._last: dict[UUID, str] = {}
        holding.observer = self._note

    async def run(self) -> int:
        """Waits until there is a job. 0 if it and everything that came of it completed, else 1."""
        while True:
            answer = await self._claims.bring_one(only=list(self._last))
            for job in answer.jobs:
                self._last[job.id] = "running"
            if self._last and not answer.jobs and not answer.open:
                return 0 if set(self._last.values()) == {"done"} else 1
            while len(self._holding):
                self._holding.freed.clear()
                await self._holding.freed.wait()

    def _note(self, job: wire.ClaimedJob, how: str) -> None:
        self._last[job.id] = how
