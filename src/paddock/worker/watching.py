"""Keeps the time of running turns: time-outs, graces, the lease. One tick looks at everything and says what it did."""

from collections.abc import Iterable
from dataclasses import dataclass

from paddock.clock import Clock
from paddock.worker.attempts import NEVER, Attempt, Stop
from paddock.worker.holding import Holding
from paddock.worker.running import Runner
from paddock.worker.session import Session

PERIOD = 0.1
# At shutdown, after a job's grace: from asking its handler to end until it is killed.
CANCEL_SECONDS = 0.5
# A turn whose lease is gone should have been killed by then.
LAST_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Ticked:
    stopped: int = 0
    killed: int = 0


class Watch:
    def __init__(self, holding: Holding, session: Session, clock: Clock) -> None:
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
        """Tells each runner when to end by itself: later than this process would end its turns, before the lease does."""
        now = self._clock.monotonic()
        ends: dict[Runner, float] = {}
        for attempt in self._holding:
            if attempt.kind.effects_outside_fence and not attempt.over:
                until = self._session.lease_ends(attempt.started) - self._session.beat_seconds / 4
                if until <= now:  # its lease is gone, and it is being stopped
                    until = attempt.kill_at + LAST_SECONDS
                ends[attempt.runner] = min(until, ends.get(attempt.runner, NEVER))
        for runner, until in ends.items():
            runner.guard(until)

    def _stop_if_due(self, attempt: Attempt, now: float) -> bool:
        if attempt.stop is not None:
            if now >= attempt.ask_at:
                self._holding.ask_to_end(attempt)
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
