"""Keeps the time of running turns: time-outs, graces, the lease. One tick looks at everything and says what it did."""

from collections.abc import Iterable
from dataclasses import dataclass

from paddock.clock import Clock
from paddock.worker.attempts import NEVER, Attempt, Stop
from paddock.worker.holding import Holding
from paddock.worker.running import Runner
from paddock.worker.session import WorkerSession

PERIOD = 0.1
# At shutdown, after a job's grace: from asking its handler to end until it is killed.
CANCEL_SECONDS = 0.5
# A supervisor that was not heard for so long stands still; its loop may well be late by some ticks.
SILENT_SECONDS = 5 * PERIOD
# A turn whose lease is gone should have been killed by then.
LAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ticked:
    stopped: int = 0
    killed: int = 0


class Watch:
    def __init__(self, holding: Holding, session: WorkerSession, clock: Clock) -> None:
        self._holding = holding
        self._session = session
        self._clock = clock
        self._shutdown_at: float | None = None
        self.ticked_at = clock.monotonic()

    def begin_shutdown(self) -> None:
        self._shutdown_at = self._clock.monotonic()

    def longest_grace(self) -> float:
        """Seconds from the begin of the shutdown until the last running job has had its grace."""
        return max((attempt.kind.grace.total_seconds() for attempt in self._holding if not attempt.over), default=0.0)

    async def run(self) -> None:
        while True:
            self.tick()
            await self._clock.sleep(PERIOD)

    def tick(self) -> Ticked:
        now = self._clock.monotonic()
        self.ticked_at = now
        self._holding.tend()
        running = [attempt for attempt in self._holding if not attempt.over]
        stopped = [attempt for attempt in running if self._stop_if_due(attempt, now)]
        overdue = [attempt for attempt in running if now >= attempt.kill_at]
        killed = [attempt for attempt in overdue if self._may_kill(attempt, running, now)]
        for attempt in killed:
            if not attempt.runner.killed:
                self._holding.kill(attempt)
        self.guard()
        return Ticked(len(stopped), len(killed))

    def guard(self) -> None:
        """Tells each runner when to end by itself unless it hears otherwise."""
        now = self._clock.monotonic()
        ends: dict[Runner, float] = {}
        for attempt in self._holding:
            if attempt.kind.effects_outside_fence and not attempt.over:
                ends[attempt.runner] = min(self._alone_until(attempt, now), ends.get(attempt.runner, NEVER))
        for runner, until in ends.items():
            runner.guard(until)

    def _alone_until(self, attempt: Attempt, now: float) -> float:
        """One beat before its lease would end. While this process lives it moves that on, so that it can ask the turn
        to end and kill it, but never up to the end of the lease."""
        lease_ends, beat = self._session.lease_ends(attempt.started), self._session.beat_seconds
        latest = lease_ends - beat / 4
        if latest <= now:  # its lease is gone, and it is being stopped
            return attempt.kill_at + LAST_SECONDS
        return min(max(lease_ends - beat, now + max(beat / 4, SILENT_SECONDS)), latest)

    def _stop_if_due(self, attempt: Attempt, now: float) -> bool:
        if attempt.stop is not None:
            if now >= attempt.ask_at:
                self._holding.ask_to_end(attempt)
            if attempt.kill_at < NEVER and self._lease_ends(attempt, now):
                # Whatever else it was asked to end for, and however long its grace: the lease is not longer.
                attempt.kill_at = min(attempt.kill_at, now + self._session.beat_seconds / 2)
            return False
        if expired := attempt.expired(now):
            self._holding.stop(attempt, expired, attempt.grace())
        elif self._lease_ends(attempt, now):
            # It must be over before the lease is: half a beat to end by itself, then the knife.
            self._holding.stop(attempt, Stop.LEASE_ENDING, min(attempt.grace(), self._session.beat_seconds / 2))
        elif self._shutdown_at is not None and now >= self._shutdown_at + attempt.kind.grace.total_seconds():
            self._holding.stop(attempt, Stop.SHUTDOWN, CANCEL_SECONDS)
        return attempt.stop is not None

    def _lease_ends(self, attempt: Attempt, now: float) -> bool:
        return attempt.kind.effects_outside_fence and now >= self._session.lease_ends(attempt.started) - (
            self._session.beat_seconds
        )

    def _may_kill(self, attempt: Attempt, running: Iterable[Attempt], now: float) -> bool:
        """At shutdown a turn that will not end waits for the longer graces of its neighbours in the same process:
        they would die with it, and it ends with them soon enough."""
        if attempt.stop is not Stop.SHUTDOWN:
            return True
        return all(now >= other.kill_at for other in running if other.runner is attempt.runner)
