"""Asks for work: a long poll is out whenever there is room, and never for more than there is room for.

With no room at all a poll for nothing is out, because its answer also brings word of attempts that lost their job.
"""

import asyncio
from math import inf
from uuid import UUID, uuid4

import structlog

from paddock.clock import Clock
from paddock.jobs import wire
from paddock.jobs.link import Link, LinkRefused, SessionUnknown
from paddock.jobs.model import Verdict
from paddock.worker.holding import Holding
from paddock.worker.patience import PatientCalls
from paddock.worker.session import WorkerSession
from paddock.worker.settings import Settings
from paddock.worker.slots import Ask, Slots

# A poll that comes back empty sooner than this was not waited for: the control plane is leaving, or has no patience.
HASTY_SECONDS = 0.5
FIRST_PAUSE = 0.05
# Full for less than this, a worker of short jobs needs no word of losses, and a poll for it would cost a connection each time.
LISTEN_AFTER = 0.05
# `--once` looks this often whether what it waits for still lives.
ONLY_WAIT_SECONDS = 1.0

log = structlog.get_logger(__name__)


class Claims:
    def __init__(
        self,
        *,
        link: Link,
        line: PatientCalls,
        session: WorkerSession,
        slots: Slots,
        holding: Holding,
        settings: Settings,
        clock: Clock,
    ) -> None:
        self._link = link
        self._line = line
        self._session = session
        self._slots = slots
        self._holding = holding
        self._settings = settings
        self._clock = clock
        self._polls: set[asyncio.Task[None]] = set()
        # Claims that may have brought jobs nobody has seen.
        self._unanswered: dict[UUID, wire.Claim] = {}
        self._listening: asyncio.Task[None] | None = None
        self._pause = 0.0
        # Set once: what is still brought after it is given back, not started.
        self.closed = False

    async def run(self) -> None:
        while True:
            self._holding.freed.clear()
            self.ask_where_there_is_room()
            await self._holding.freed.wait()

    def ask_where_there_is_room(self) -> None:
        if not self._session.quiet:
            while ask := self._slots.ask(another=len(self._polls) < self._settings.claims_in_flight):
                poll = asyncio.create_task(self._poll(ask))
                self._polls.add(poll)
                poll.add_done_callback(self._polls.discard)
        if self._polls:
            self._stop_listening()
        else:
            self._listen_for_losses()

    async def stop(self) -> None:
        """Ends the polls. One that was just being answered may have brought jobs: the same claim id, asked again with
        no room, brings them and nothing new, and they are given back at once instead of after a while."""
        self.closed = True
        self._stop_listening()
        polls, self._polls = self._polls, set()
        for poll in polls:
            poll.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
        for claim in list(self._unanswered.values()):
            claim.limit, claim.submitted_limit, claim.wait_seconds = 0, 0, 0
            self._holding.hand_back((await self._ask(claim)).jobs)

    async def bring_one(self, only: list[UUID], wait_seconds: float = inf) -> wire.Claimed:
        """One job, started; with `only`, one of these, their cleanups and follow-ups. Empty after a while, `wait_seconds`
        at most."""
        asked_at = self._clock.monotonic()
        claim = self._claim(Ask(self._slots.kinds, 1, 0))
        claim.submitted_limit, claim.only = None, list(only)
        claim.wait_seconds = min(claim.wait_seconds, ONLY_WAIT_SECONDS if only else wait_seconds)
        answer = await self._ask(claim)
        self._drop_lost(answer)
        self._slots.take(answer.jobs)
        self._start(answer.jobs)
        if not answer.jobs:
            await self._pause_if_hasty(asked_at)
        return answer

    def _listen_for_losses(self) -> None:
        if self._listening is None or self._listening.done():
            self._listening = asyncio.create_task(self._listen())

    def _stop_listening(self) -> None:
        if self._listening is not None:
            # It can have claimed nothing, so nothing is lost with its answer.
            self._listening.cancel()
            self._listening = None

    async def _poll(self, ask: Ask) -> None:
        jobs: list[wire.ClaimedJob] = []
        asked_at = self._clock.monotonic()
        try:
            answer = await self._ask(self._claim(ask))
            self._drop_lost(answer)
            jobs = answer.jobs
            if not jobs:
                await self._pause_if_hasty(asked_at)  # its slots stay reserved, so that no other poll takes its place
        finally:
            self._slots.answered(ask, jobs)
            self._polls -= {asyncio.current_task()}
            self._holding.freed.set()
        self._start(jobs)

    def _start(self, jobs: list[wire.ClaimedJob]) -> None:
        if self.closed:
            for job in jobs:
                self._slots.give_back(job)
            self._holding.hand_back(jobs)
        elif jobs:
            self._pause = 0.0
            self._holding.take(jobs)

    async def _listen(self) -> None:
        await self._clock.sleep(LISTEN_AFTER)
        while True:
            asked_at = self._clock.monotonic()
            # It names no kinds, so that no wake-up is spent on it.
            self._drop_lost(await self._ask(self._claim(Ask([], 0, 0))))
            await self._pause_if_hasty(asked_at)
            self._holding.freed.set()  # a worker that is no longer quiet asks for work again

    async def _ask(self, claim: wire.Claim) -> wire.Claimed:
        """Repeats the very same claim until it is answered: the control plane knows it by its id."""
        if claim.limit or claim.submitted_limit:
            self._unanswered[claim.claim_id] = claim
        try:
            answer = await self._line.ask(lambda: self._link.claim(claim))
            self._unanswered.pop(claim.claim_id, None)
            return answer
        except SessionUnknown:
            await self._session.open(instead_of=claim.session)
        except LinkRefused as error:
            log.error("claim_refused", error=str(error), status=error.status)
        self._unanswered.pop(claim.claim_id, None)
        return wire.Claimed(jobs=[])

    def _claim(self, ask: Ask) -> wire.Claim:
        return wire.Claim(
            session=self._session.id,
            claim_id=uuid4(),
            kinds=ask.kinds,
            limit=ask.limit,
            wait_seconds=self._settings.long_poll.total_seconds(),
            submitted_limit=ask.submitted_limit,
            limits=ask.limits,
        )

    def _drop_lost(self, answer: wire.Claimed) -> None:
        for attempt_id in answer.lost:
            self._holding.lost(attempt_id, Verdict.CANCELLED)

    async def _pause_if_hasty(self, asked_at: float) -> None:
        if self._clock.monotonic() - asked_at >= HASTY_SECONDS:
            self._pause = 0.0
            return
        self._pause = min(max(self._pause * 2, FIRST_PAUSE), self._settings.poll_interval.total_seconds())
        await self._clock.sleep(self._pause)
