"""Where turns run, seen from the supervisor.

A `Runner` runs turns and tells its `Owner` what becomes of them: each started turn is answered once, by `ended`,
`stopped`, or the runner's `died`.
"""

from typing import Any, Protocol
from uuid import UUID

from paddock.jobs import wire
from paddock.jobs.kinds import Kind


class Owner(Protocol):
    def ended(self, item: wire.FinishItem) -> None: ...

    def stopped(self, attempt_id: UUID) -> None:
        """The handler is over and has nothing to say: it was told to stop, or lost its job."""

    def save(self, item: wire.SaveItem) -> None:
        """Answered by the runner's `saved`. A turn has at most one save on its way."""

    def report(self, attempt_id: UUID, progress: dict[str, Any]) -> None: ...

    def log(self, attempt_id: UUID, lines: str, dropped_bytes: int = 0) -> None: ...


class RunnerOwner(Owner, Protocol):
    def died(self, runner: "Runner", how: str) -> None:
        """Nothing in it runs any more. `how` names the signal or exit code."""


class Runner(Protocol):
    # Whether `kill` ends whatever runs in it. What runs inside the control plane's own process cannot be killed.
    killable: bool
    # Whether `kill` was called.
    killed: bool
    # What was last said to `guard`.
    guarded_until: float

    def start(self, job: wire.ClaimedJob) -> None: ...

    def stop(self, attempt_id: UUID) -> None:
        """Asks the handler to end: an async one is cancelled, in a blocking one `TurnStopped` is raised."""

    def saved(self, attempt_id: UUID, verdict: str, message: str | None) -> None: ...

    def guard(self, until: float) -> None:
        """When it must end by itself, if it runs a turn with effects outside the fence: a time of the monotonic clock.
        Said before such a turn starts, and again whenever the lease was renewed."""

    def kill(self) -> None: ...


class Runners(Protocol):
    """Finds a runner for each turn, and starts and ends the runners."""

    def open(self, owner: RunnerOwner) -> None: ...

    def place(self, kind: Kind, job: wire.ClaimedJob) -> Runner: ...

    def tend(self) -> None:
        """Called now and then: ends what has been idle for long."""

    def kill_all(self) -> None: ...

    async def close(self) -> None: ...


def forget_contents(job: wire.ClaimedJob) -> None:
    """A started job's payload, and the message it came in, need not stay in the supervisor, nor its secrets."""
    job.payload = job.saved = wire.NOTHING
    job.secrets = {}
