"""The attempts this worker holds, from the claim's answer until their end is acknowledged.

Guarantees
- Every attempt taken here ends in exactly one accepted write, or in the fence's word that it is no longer ours; no
  outage and no death of a runner changes that.
- A slot is free only after that answer. Otherwise a control plane that is away would let outcomes pile up in memory.
- A job is given back, failed, or said to be stopped only after its handler runs no more. The exception is what cannot
  be killed, at shutdown (`abandon`).
"""

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import structlog

from paddock.clock import Clock
from paddock.jobs import wire
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.link import Link
from paddock.jobs.model import Verdict
from paddock.metrics import Metrics
from paddock.worker.attempts import NEVER, Attempt, Stop
from paddock.worker.outbox import REFUSED, Outbox
from paddock.worker.patience import PatientCalls
from paddock.worker.running import Runner, Runners, forget_contents
from paddock.worker.shipping import Shipper
from paddock.worker.slots import Slots

GOOD = frozenset({Verdict.ACCEPTED.value, Verdict.ALREADY_YOURS.value})
LOST = frozenset({Verdict.CANCELLED.value, Verdict.STALE_ATTEMPT.value})
# What could not be killed may still be at work when its job is given back.
UNKILLED_DELAY = timedelta(seconds=5)
NOT_STARTED_DELAY = timedelta(seconds=5)
# A handler that catches StaleAttempt has this long to end before it is cancelled.
STALE_PATIENCE = 0.5

log = structlog.get_logger(__name__)

Observer = Callable[[wire.ClaimedJob, str], None]


class Holding:
    def __init__(
        self,
        *,
        link: Link,
        line: PatientCalls,
        kinds: Kinds,
        runners: Runners,
        slots: Slots,
        shipper: Shipper,
        clock: Clock,
        metrics: Metrics,
        calls_in_flight: int = 1,
    ) -> None:
        self._kinds = kinds
        self._runners = runners
        self._slots = slots
        self._shipper = shipper
        self._clock = clock
        self._metrics = metrics
        self._attempts: dict[UUID, Attempt] = {}
        self._finishes: Outbox[wire.FinishItem] = Outbox(
            line,
            lambda items: link.finish(wire.Finish(items=items)),
            self._finished,
            calls_in_flight=calls_in_flight,
        )
        self._releases: Outbox[wire.ReleaseItem] = Outbox(
            line, lambda items: link.release(wire.Release(items=items)), self._released
        )
        self._saves: Outbox[wire.SaveItem] = Outbox(
            line, lambda items: link.save(wire.Save(items=items)), self._saves_answered
        )
        # Set whenever slots became free; whenever a report changed.
        self.freed = asyncio.Event()
        self.reported = asyncio.Event()
        # Tells runners until when they may run what has effects outside the fence.
        self.guard: Callable[[], None] | None = None
        # Told of each job whose attempt is over: with its outcome's name, `released`, or the fence's verdict.
        self.observer: Observer | None = None

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._attempts.values()))

    def open(self) -> None:
        self._runners.open(self)

    def take(self, jobs: list[wire.ClaimedJob]) -> None:
        """Starts claimed jobs; the caller has counted their slots."""
        now = self._clock.monotonic()
        for job in jobs:
            if job.attempt_id in self._attempts:
                self._slots.give_back(job)  # a claim's answer that came twice
                continue
            kind = self._kinds.get(job.kind)
            runner = None if kind is None else self._place(kind, job)
            if kind is None or runner is None:
                self._refuse(job)
                continue
            self._attempts[job.attempt_id] = Attempt(job, kind, runner, now)
            if kind.effects_outside_fence and self.guard is not None:
                self.guard()  # first: this process may stand still after any line
            runner.start(job)
            if runner.killable:
                forget_contents(job)

    def _place(self, kind: Kind, job: wire.ClaimedJob) -> Runner | None:
        try:
            return self._runners.place(kind, job)
        except OSError as error:  # no memory or no processes left: others may have some
            log.error("runner_not_started", kind=kind.name, error=str(error))
            return None

    def _refuse(self, job: wire.ClaimedJob) -> None:
        self._slots.give_back(job)
        item = wire.ReleaseItem(id=job.id, attempt_id=job.attempt_id, reason="not_started")
        item.delay_seconds = NOT_STARTED_DELAY.total_seconds()
        self._releases.put(item)

    # What runners say.

    def ended(self, item: wire.FinishItem) -> None:
        attempt = self._attempts.get(item.attempt_id)
        if attempt is None or attempt.over:
            return
        if attempt.stop is Stop.LOST:
            self._end(attempt, attempt.end_of_stop(Stop.LOST))
        else:
            self._end(attempt, item)

    def stopped(self, attempt_id: UUID) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is not None and not attempt.over:
            # Without a reason of ours the handler itself raised StaleAttempt.
            self._end(attempt, attempt.end_of_stop(attempt.stop or Stop.LOST))

    def died(self, runner: Runner, how: str) -> None:
        turns = [attempt for attempt in self._attempts.values() if attempt.runner is runner and not attempt.over]
        # Whether it ended because this process stood still for so long; the watch may have seen that first.
        passed = self._clock.monotonic() >= runner.guarded_until
        outside = [attempt for attempt in turns if attempt.kind.effects_outside_fence]
        by_itself = any(passed or attempt.stop is Stop.LEASE_ENDING for attempt in outside)
        for attempt in turns:
            if attempt.stop is not None:
                self._end(attempt, attempt.end_of_stop(attempt.stop))
            elif by_itself and attempt.kind.effects_outside_fence:
                self._end(attempt, attempt.end_of_stop(Stop.LEASE_ENDING))
            elif runner.killed or by_itself:
                self._end(attempt, attempt.end_of_stop(Stop.RUNNER_KILLED))
            else:
                self._end(attempt, _runner_died(attempt, how))
        if turns:
            log.warning("runner_died", how=how, turns=len(turns), killed_by_us=runner.killed, lease_ended=by_itself)

    def save(self, item: wire.SaveItem) -> None:
        if attempt := self._attempts.get(item.attempt_id):
            attempt.saves_unanswered += 1
        self._saves.put(item)

    def report(self, attempt_id: UUID, progress: dict[str, Any]) -> None:
        attempt = self._attempts.get(attempt_id)
        if attempt is not None and progress != attempt.report:
            attempt.report = progress
            attempt.report_changed = True
            self.reported.set()

    def log(self, attempt_id: UUID, lines: str, dropped_bytes: int = 0) -> None:
        if attempt := self._attempts.get(attempt_id):
            self._shipper.add(attempt.job.id, attempt_id, lines, dropped_bytes)

    # What the control plane says.

    def lost(self, attempt_id: UUID, verdict: str) -> None:
        """The job moved on. An attempt that is over already will learn it from the answer to its last write."""
        attempt = self._attempts.get(attempt_id)
        if attempt is not None and not attempt.over and attempt.stop is not Stop.LOST:
            self._note_lost(attempt, verdict)
            self.stop(attempt, Stop.LOST, attempt.grace())

    def _note_lost(self, attempt: Attempt, verdict: str) -> None:
        if not attempt.acknowledges:
            attempt.acknowledges = True
            self._metrics.stale_writes(attempt.kind.name).inc()
            log.warning(
                "writeback_stale_attempt",
                job=str(attempt.job.id),
                attempt=str(attempt.id),
                kind=attempt.kind.name,
                verdict=verdict,
            )

    def _saves_answered(self, answers: list[tuple[wire.SaveItem, wire.ItemVerdict]]) -> None:
        now = self._clock.monotonic()
        for item, verdict in answers:
            attempt = self._attempts.get(item.attempt_id)
            if attempt is None or attempt.over:
                continue
            attempt.saves_unanswered -= 1
            if verdict.verdict in GOOD and item.progress:
                attempt.saved(now)
            known = Verdict.INVALID.value if verdict.verdict == REFUSED else verdict.verdict
            attempt.runner.saved(item.attempt_id, known, verdict.message)
            if known not in GOOD and known != Verdict.INVALID:
                # After the answer, so that the handler sees StaleAttempt where it saved, not a cancellation.
                self._note_lost(attempt, verdict.verdict)
                attempt.stop = Stop.LOST
                attempt.ask_at = now + STALE_PATIENCE
                attempt.kill_at = now + STALE_PATIENCE + attempt.grace()

    def _finished(self, answers: list[tuple[wire.FinishItem, wire.ItemVerdict]]) -> None:
        for item, verdict in answers:
            attempt = self._attempts.get(item.attempt_id)
            if attempt is None:
                continue
            if verdict.verdict in GOOD:
                self._let_go(attempt, item.outcome)
            elif verdict.verdict in LOST:
                self._note_lost(attempt, verdict.verdict)
                self._releases.put(attempt.release("stopped"))
            elif verdict.verdict == REFUSED and item.outcome != "permanent":
                self._replace_refused(attempt, verdict)
            else:
                self._log_dropped("finish", attempt, verdict)
                self._let_go(attempt, verdict.verdict)

    def _replace_refused(self, attempt: Attempt, verdict: wire.ItemVerdict) -> None:
        message = f"The control plane could not take the result: {verdict.message or 'no reason given'}"
        self._finishes.put(attempt.failure("invalid_result", message, permanent=True))

    def _released(self, answers: list[tuple[wire.ReleaseItem, wire.ItemVerdict]]) -> None:
        for item, verdict in answers:
            attempt = self._attempts.get(item.attempt_id)
            if attempt is None:
                continue
            if verdict.verdict in LOST and item.reason != "stopped":
                self._note_lost(attempt, verdict.verdict)
            elif verdict.verdict not in GOOD and verdict.verdict not in LOST:
                self._log_dropped("release", attempt, verdict)
            self._let_go(attempt, verdict.verdict if verdict.verdict in LOST else "released")

    def _log_dropped(self, what: str, attempt: Attempt, verdict: wire.ItemVerdict) -> None:
        log.error(
            "write_refused",
            what=what,
            job=str(attempt.job.id),
            attempt=str(attempt.id),
            kind=attempt.kind.name,
            verdict=verdict.verdict,
            message=verdict.message,
        )

    # What the supervisor decides.

    def stop(self, attempt: Attempt, why: Stop, grace: float) -> None:
        """Asks the handler to end, and sets when its runner is killed if it does not."""
        first = attempt.stop is None
        attempt.stop = why
        attempt.kill_at = min(attempt.kill_at, self._clock.monotonic() + grace)
        if first:
            self.ask_to_end(attempt)

    def ask_to_end(self, attempt: Attempt) -> None:
        attempt.ask_at = NEVER
        attempt.runner.stop(attempt.id)

    def kill(self, attempt: Attempt) -> None:
        """For a handler that did not end when asked. In a shared runner the other turns die with it; they are given
        back, for it was no fault of theirs."""
        attempt.kill_at = NEVER
        log.warning(
            "handler_killed" if attempt.runner.killable else "handler_cannot_be_killed",
            job=str(attempt.job.id),
            kind=attempt.kind.name,
            why=None if attempt.stop is None else attempt.stop.value,
        )
        if attempt.runner.killable:
            attempt.runner.kill()

    def tend(self) -> None:
        self._runners.tend()

    def hand_back(self, jobs: list[wire.ClaimedJob]) -> None:
        """For jobs that came too late to be started."""
        for job in jobs:
            if job.attempt_id not in self._attempts:
                self._releases.put(wire.ReleaseItem(id=job.id, attempt_id=job.attempt_id, reason="shutdown"))

    def report_again(self, held: list[wire.Held]) -> None:
        for item in held:
            attempt = self._attempts.get(item.attempt_id)
            if attempt is not None and item.report is not None:
                attempt.report_changed = True
                self.reported.set()

    @property
    def settled(self) -> bool:
        """Whether everything that was held has been let go, and the control plane knows."""
        return not self._attempts and self._finishes.idle and self._releases.idle

    def abandon(self) -> None:
        """Gives back what still runs and cannot be killed, late enough that it will have ended with this process."""
        for attempt in self:
            if not attempt.over and not attempt.runner.killable:
                attempt.over = True
                self._releases.put(attempt.release("shutdown", UNKILLED_DELAY))

    def kill_all(self) -> None:
        for attempt in self:
            attempt.stop = attempt.stop or Stop.SHUTDOWN
        self._runners.kill_all()

    async def close(self) -> None:
        for outbox in (self._finishes, self._releases, self._saves):
            await outbox.close()
        await self._runners.close()

    def _end(self, attempt: Attempt, last: wire.FinishItem | wire.ReleaseItem) -> None:
        attempt.over = True
        if isinstance(last, wire.ReleaseItem):
            self._releases.put(last)
            outcome = "released"
        else:
            self._finishes.put(last)
            outcome = last.outcome
        seconds = self._clock.monotonic() - attempt.started
        self._metrics.handler_seconds(attempt.kind.name, outcome).observe(seconds)

    def _let_go(self, attempt: Attempt, how: str) -> None:
        del self._attempts[attempt.id]
        self._slots.give_back(attempt.job)
        self.freed.set()
        if self.observer is not None:
            self.observer(attempt.job, how)


def _runner_died(attempt: Attempt, how: str) -> wire.FinishItem:
    hint = "Look for a crash in native code in the worker's output."
    if "SIGKILL" in how:
        hint = "The system was probably out of memory: give the worker more, or lower its concurrency."
    return attempt.failure("runner_died", f"The process that ran this turn {how}.", hint)
