"""Runs turns on the caller's own loop: the worker inside `paddock serve`, whose handlers need the database.

Nothing here can be killed. A handler that ignores its cancellation keeps its slot, and at shutdown its job is given
back with a delay.
"""

import inspect
from collections.abc import Mapping
from uuid import UUID

from paddock.jobs import wire
from paddock.jobs.kinds import Kind, Kinds
from paddock.worker.resources import Resources
from paddock.worker.running import RunnerOwner
from paddock.worker.turns import Turns, collect_records


class LocalRunner:
    """Both the runner and the place where it is found."""

    killable = False
    killed = False
    guarded_until = float("inf")

    def __init__(self, kinds: Kinds, resources: Mapping[type, object] | None = None) -> None:
        for kind in kinds:
            for function in filter(None, (kind.handler, kind.cleanup)):
                if not inspect.iscoroutinefunction(function):
                    raise ValueError(f"Kind '{kind.name}' blocks and cannot run inside the control plane.")
        self._kinds = kinds
        self._resources = Resources(resources)
        self._turns: Turns

    def open(self, owner: RunnerOwner) -> None:
        collect_records()
        self._turns = Turns(self._kinds, self._resources, owner)

    def place(self, kind: Kind, job: wire.ClaimedJob) -> "LocalRunner":
        return self

    def start(self, job: wire.ClaimedJob) -> None:
        self._turns.start(job)

    def stop(self, attempt_id: UUID) -> None:
        self._turns.stop(attempt_id)

    def saved(self, attempt_id: UUID, verdict: str, message: str | None) -> None:
        self._turns.saved(attempt_id, verdict, message)

    def guard(self, until: float) -> None:
        """Nothing outside this process could stop when this process does not."""

    def kill(self) -> None:
        raise RuntimeError("What runs inside the control plane cannot be killed.")

    def tend(self) -> None:
        pass

    def kill_all(self) -> None:
        pass

    async def close(self) -> None:
        pass
