"""One attempt as its supervisor sees it, and what stopping it means."""

from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from paddock.jobs import wire
from paddock.jobs.kinds import Kind
from paddock.worker.running import Runner

LEAST_GRACE = 1.0
NEVER = float("inf")


class Stop(Enum):
    """Why a handler is being stopped before it gave an outcome."""

    LOST = "lost"
    LEASE_ENDING = "lease_ending"
    SHUTDOWN = "shutdown"
    RUNNER_KILLED = "runner_killed"
    TURN_TIMEOUT = "turn_timeout"
    STALLED = "stalled"
    TIMED_OUT = "timed_out"


# What a stopped attempt tells the control plane: a release gives the job back uncounted (or, when the job is no longer
# its own, acknowledges that), a failure counts.
RELEASES: Mapping[Stop, str] = {
    Stop.LOST: "stopped",
    Stop.LEASE_ENDING: "lease_ending",
    Stop.SHUTDOWN: "shutdown",
    Stop.RUNNER_KILLED: "runner_killed",
}
FAILURES: Mapping[Stop, tuple[str, str, str]] = {
    Stop.TURN_TIMEOUT: (
        "transient",
        "The turn ran for more than {turn:g} s and was stopped.",
        "Let the handler end its turn earlier with again(...), or raise the kind's turn timeout.",
    ),
    Stop.STALLED: (
        "transient",
        "Nothing was saved for {stall:g} s, so the turn was stopped.",
        "Let the handler save its progress more often, or raise the kind's stall timeout.",
    ),
    Stop.TIMED_OUT: (
        "permanent",
        "The job took longer than its kind allows in total and was stopped.",
        "Retry it when what it waits for is faster, or raise the kind's total timeout.",
    ),
}


class Attempt:
    """Held from the claim's answer until its end is acknowledged. `over`: its handler runs no more."""

    __slots__ = (
        "acknowledges",
        "ask_at",
        "job",
        "kill_at",
        "kind",
        "over",
        "report",
        "report_changed",
        "runner",
        "saves_unanswered",
        "stall_at",
        "started",
        "stop",
        "total_at",
        "turn_at",
    )

    def __init__(self, job: wire.ClaimedJob, kind: Kind, runner: Runner, now: float) -> None:
        self.job = job
        self.kind = kind
        self.runner = runner
        self.started = now
        self.over = False
        self.stop: Stop | None = None
        # When to ask it to end, where that was put off; when to kill it.
        self.ask_at = NEVER
        self.kill_at = NEVER
        # Whether the fence has said that the job is no longer this attempt's.
        self.acknowledges = False
        self.saves_unanswered = 0
        self.report: dict[str, Any] | None = None
        self.report_changed = False
        self.turn_at = NEVER if job.turn_timeout is None else now + job.turn_timeout
        self.total_at = NEVER if job.total_left is None else now + job.total_left
        left = job.stall_timeout if job.stall_left is None else job.stall_left
        self.stall_at = NEVER if left is None else now + left

    @property
    def id(self) -> UUID:
        return self.job.attempt_id

    def saved(self, now: float) -> None:
        if self.job.stall_timeout is not None:
            self.stall_at = now + self.job.stall_timeout

    def expired(self, now: float) -> Stop | None:
        # The total first: it is permanent, and a job whose time is over should not be tried again.
        if now >= self.total_at:
            return Stop.TIMED_OUT
        if now >= self.turn_at:
            return Stop.TURN_TIMEOUT
        # A save that no one could take yet is progress all the same, if the fence will have it.
        if now >= self.stall_at and not self.saves_unanswered:
            return Stop.STALLED
        return None

    def grace(self) -> float:
        return max(self.kind.grace.total_seconds(), LEAST_GRACE)

    def held(self) -> wire.Held:
        report = self.report if self.report_changed else None
        self.report_changed = False
        return wire.Held(id=self.job.id, attempt_id=self.job.attempt_id, report=report)

    def release(self, reason: str, delay: timedelta = timedelta(0)) -> wire.ReleaseItem:
        return wire.ReleaseItem(
            id=self.job.id, attempt_id=self.job.attempt_id, reason=reason, delay_seconds=delay.total_seconds()
        )

    def failure(self, code: str, message: str, hint: str | None = None, *, permanent: bool = False) -> wire.FinishItem:
        return wire.FinishItem(
            id=self.job.id,
            attempt_id=self.job.attempt_id,
            outcome="permanent" if permanent else "transient",
            error=wire.Error(code=code, message=message, hint=hint),
        )

    def end_of_stop(self, stop: Stop) -> wire.FinishItem | wire.ReleaseItem:
        """What to write now that the handler has really stopped."""
        if stop is Stop.SHUTDOWN and self.kind.fail_on_shutdown:
            return self.failure("worker_shutdown", "Worker received SIGTERM", permanent=True)
        if stop in RELEASES:
            return self.release(RELEASES[stop])
        if stop is Stop.STALLED and self.kind.stall_fails is not None:
            return self.failure(stop.value, self.kind.stall_fails, permanent=True)
        outcome, message, hint = FAILURES[stop]
        text = message.format(turn=self.job.turn_timeout or 0, stall=self.job.stall_timeout or 0)
        return self.failure(stop.value, text, hint, permanent=outcome == "permanent")
