"""How fast this process calls the API server: 20 calls a second, 40 at once. A server that has too much says so by 429, and
then every create of the process waits, not the one that was refused alone."""

from paddock.clock import Clock
from paddock.runtimes.kubernetes.metrics import KubernetesMetrics

RATE, BURST = 20.0, 40.0


class Pacing:
    def __init__(self, clock: Clock, metrics: KubernetesMetrics, rate: float = RATE, burst: float = BURST) -> None:
        self._clock, self._metrics = clock, metrics
        self._rate, self._burst = rate, burst
        # May fall below zero: those calls wait until it is filled up again.
        self._left, self._filled_at = burst, clock.monotonic()
        self._creates_held_until = 0.0

    async def turn(self) -> None:
        now = self._clock.monotonic()
        self._left = min(self._burst, self._left + (now - self._filled_at) * self._rate) - 1
        self._filled_at = now
        if self._left < 0:
            wait = -self._left / self._rate
            self._metrics.throttled_seconds.inc(wait)
            await self._clock.sleep(wait)

    def hold_creates(self, seconds: float) -> None:
        now = self._clock.monotonic()
        until = max(self._creates_held_until, now + seconds)
        self._metrics.throttled_seconds.inc(until - max(self._creates_held_until, now))
        self._creates_held_until = until

    @property
    def creates_held(self) -> float:
        """For how many more seconds."""
        return max(0.0, self._creates_held_until - self._clock.monotonic())
