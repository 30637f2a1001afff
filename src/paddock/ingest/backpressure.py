"""The cluster is the signal: no more Jobs are made than it finds places for.

Before a step's Job is made, its worker looks at the installation's Jobs in the namespace; while too many of them have no place
it waits, inside its turn. Nothing is stored and nothing is set: a cluster that grows is used as far as it grew, and one that
schedules nothing sees one Job at a time. The workers do not know of each other; each sees what the others made a moment
later, so a few more than the bound may be without a place at once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import NamedTuple

# While it waits a worker looks again after this, or when something changed.
LOOK_AGAIN = timedelta(seconds=5)
# Then the slot is given back: other work of this worker may go first.
PATIENCE = timedelta(minutes=10)
# On a crowded cluster a worker that sees room waits for up to so long once more: others see it, too, and what one makes the
# others see a moment later. Longer where nothing runs: there is one place for all of them.
SPREAD = timedelta(seconds=1)
SPREAD_OF_NONE = timedelta(seconds=5)
PHASE = "waiting for the cluster"


class JobSeen(NamedTuple):
    """A Job that has not ended. `step` is the job of ours that it is for."""

    step: str
    scheduled: bool


class Seen(NamedTuple):
    scheduled: int
    unscheduled: int

    @property
    def room(self) -> bool:
        """For one more. A quarter beside what runs is enough to ask for more places, and to fill those that become free."""
        return self.unscheduled < max(1, self.scheduled / 4)


def count(jobs: Iterable[JobSeen], promised: Iterable[str] = ()) -> Seen:
    """`promised` are steps whose Job is about to be made, or was a moment ago; without a place until the cluster shows it."""
    known = {job.step: job.scheduled for job in jobs}
    scheduled = sum(known.values())
    return Seen(scheduled, len(known) - scheduled + sum(step not in known for step in promised))


class Queue:
    """The steps of one process that want to make a Job, in their order. Only the first of them looks: otherwise all that
    wait would take the one place that became free."""

    def __init__(
        self,
        look: Callable[[], Iterable[JobSeen]],
        tick: Callable[[], Awaitable[object]],
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`look` is what the client's list and watch have; `tick` returns after `LOOK_AGAIN` or when that changed."""
        self._look = look
        self._tick = tick
        self._chance = chance
        self._first = asyncio.Lock()
        self._promised: set[str] = set()
        # There was no room once, and something has been without a place ever since.
        self._crowded = False

    def seen(self) -> Seen:
        return count(self._look(), self._promised)

    async def wait(self, step: str, tell: Callable[[Seen], None], patience: timedelta = PATIENCE) -> bool:
        """Until the step may make its Job; from then on it is counted, until `leave`. False: the patience is over. A step
        whose Job is there already waits for nothing."""
        if any(job.step == step for job in self._look()):
            self._promised.add(step)
            return True
        try:
            async with asyncio.timeout(patience.total_seconds()):
                if self._first.locked():
                    tell(self.seen())
                async with self._first:
                    await self._until_room(tell)
                    self._promised.add(step)
        except TimeoutError:
            return False
        return True

    async def _until_room(self, tell: Callable[[Seen], None]) -> None:
        """All workers see the place that became free at once, so each lets a little time go by, and looks once more."""
        spread = False
        while True:
            seen = self.seen()
            if not seen.room:
                self._crowded, spread = True, False
                tell(seen)
                await self._tick()
            elif self._crowded and not spread:
                spread = True
                await asyncio.sleep(self._chance() * (SPREAD if seen.scheduled else SPREAD_OF_NONE).total_seconds())
            else:
                self._crowded = self._crowded and seen.unscheduled > 0
                return

    def leave(self, step: str) -> None:
        """Its Job has ended, or was never made."""
        self._promised.discard(step)
