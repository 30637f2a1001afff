"""The worker's session: one beat renews the lease of everything it holds.

The lease is reckoned from the moment an acknowledged beat was *sent*: the control plane renewed it no earlier. What
the worker's clock says only decides when it stops by itself, never who holds a job.
"""

import asyncio
import random
from collections.abc import Sequence
from uuid import UUID

import structlog

from paddock.clock import Clock
from paddock.jobs import wire
from paddock.jobs.link import Link, LinkDown, LinkRefused, SessionUnknown
from paddock.jobs.model import Verdict
from paddock.metrics import Metrics
from paddock.worker.holding import LOST, Holding
from paddock.worker.outbox import in_order
from paddock.worker.patience import CREDENTIALS, PatientCalls

GONE = LOST | {Verdict.UNKNOWN.value}
REPORT_PERIOD = 1.0
LEAST_TIMEOUT = 1.0

log = structlog.get_logger(__name__)


class WorkerSession:
    def __init__(
        self,
        *,
        link: Link,
        line: PatientCalls,
        holding: Holding,
        register: wire.Register,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._link = link
        self._line = line
        self._holding = holding
        self._register = register
        self._clock = clock
        self._metrics = metrics
        self._registered: wire.Registered | None = None
        self._opened_at = 0.0
        self._acknowledged_at = 0.0
        self._opening = asyncio.Lock()
        # The control plane asked this worker to claim nothing new.
        self.quiet = False

    @property
    def id(self) -> UUID:
        assert self._registered is not None, "the session is not open"
        return self._registered.session

    @property
    def beat_seconds(self) -> float:
        return 10.0 if self._registered is None else self._registered.beat_seconds

    def lease_ends(self, taken_at: float) -> float:
        """When the lease of an attempt taken at that time ends. One that an earlier session took has none."""
        if self._registered is None or taken_at < self._opened_at:
            return 0.0
        return self._acknowledged_at + self._registered.lease_seconds

    def alive(self) -> bool:
        return self._registered is not None and self._clock.monotonic() < self.lease_ends(self._opened_at)

    async def open(self, instead_of: UUID | None = None) -> None:
        """Registers, unless somebody else has meanwhile replaced the session that was found dead."""
        async with self._opening:
            if self._registered is not None and self._registered.session != instead_of:
                return
            asked_at = 0.0

            async def register() -> wire.Registered:
                nonlocal asked_at
                asked_at = self._clock.monotonic()
                return await self._link.register(self._register)

            self._registered = await self._line.ask(register)
            # Not when it was asked: an attempt taken in between belongs to the session before.
            self._opened_at, self._acknowledged_at = self._clock.monotonic(), asked_at
            log.info("session_opened", session=str(self.id), again=instead_of is not None)
            if self._registered.unknown_kinds:
                log.warning(
                    "unknown_kinds",
                    kinds=self._registered.unknown_kinds,
                    hint="The control plane does not know these kinds and will give out none of them; upgrade it.",
                )

    async def run(self) -> None:
        pause = self.beat_seconds
        while True:
            due = self._clock.monotonic() + pause
            await self._clock.sleep(pause)
            if await self.beat():
                self._metrics.heartbeat_lag.observe(max(0.0, self._clock.monotonic() - due))
                pause = self.beat_seconds
            else:
                # Sooner than the next beat: the lease runs.
                pause = self.beat_seconds / 5 * random.uniform(0.5, 1.5)

    async def beat(self, *, dying: bool = False) -> bool:
        """One beat for all that is held. Says whether it was acknowledged."""
        session, sent_at = self.id, self._clock.monotonic()
        if not await self._send([attempt.held() for attempt in self._holding], renew=True, dying=dying):
            return False
        if session == self.id:
            self._acknowledged_at = sent_at
        return True

    async def run_reports(self) -> None:
        """Between beats, at most once a second, what changed."""
        while True:
            await self._holding.reported.wait()
            self._holding.reported.clear()
            changed = [attempt.held() for attempt in self._holding if attempt.report_changed]
            if changed:
                await self._send(changed, renew=False, dying=False)
            await self._clock.sleep(REPORT_PERIOD)

    async def _send(self, held: list[wire.Held], *, renew: bool, dying: bool) -> bool:
        session = self.id
        try:
            async with asyncio.timeout(max(LEAST_TIMEOUT, self.beat_seconds)):
                answer = await self._link.beat(session, wire.Beat(holding=held, renew=renew, dying=dying))
        except SessionUnknown:
            log.warning("session_unknown", session=str(session))
            await self.open(instead_of=session)
        except (LinkDown, TimeoutError) as error:
            self._line.went_down(error if isinstance(error, LinkDown) else LinkDown("A beat was not answered in time."))
        except LinkRefused as error:
            if error.status in CREDENTIALS:
                self._line.was_refused(error)
            else:
                log.error("beat_refused", error=str(error))
        else:
            self._line.came_back()
            self.quiet = answer.quiet if renew else self.quiet
            self._drop_lost(held, answer.verdicts)
            return True
        self._holding.report_again(held)
        return False

    def _drop_lost(self, held: Sequence[wire.Held], verdicts: Sequence[wire.ItemVerdict]) -> None:
        for item, verdict in zip(held, in_order(held, verdicts), strict=True):
            if verdict.verdict in GONE:
                self._holding.lost(item.attempt_id, verdict.verdict)
