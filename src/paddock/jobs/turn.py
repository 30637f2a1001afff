"""What a handler holds: one turn of one job.

A handler has no queue, lease, retry or clock. It may save (fenced, synchronous, raises `StaleAttempt` when the job
moved on), report (lossy, for people) and log; it ends by returning an outcome or raising.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, Protocol, TypeVar

from pydantic import BaseModel

from paddock.jobs.model import AttemptId, JobId, JsonObject

P = TypeVar("P", bound=BaseModel)


class TurnLink(Protocol):
    """How a turn reaches its control plane; the worker provides it."""

    async def save(self, state: JsonObject, *, progress: bool) -> None: ...

    def save_blocking(self, state: JsonObject, *, progress: bool) -> None: ...

    def report(self, progress: JsonObject) -> None: ...

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None: ...


class Turn(Generic[P]):
    def __init__(
        self,
        *,
        id: JobId,
        attempt_id: AttemptId,
        kind: str,
        payload: P,
        saved: JsonObject | None,
        owner: str,
        link: TurnLink,
        role: str | None = None,
        tags: Sequence[str] = (),
        turn_count: int = 1,
        failure_count: int = 0,
        lost_count: int = 0,
        waiting_on: str | None = None,
        cleanup_of: JobId | None = None,
        secrets: Mapping[str, str] | None = None,
        traceparent: str | None = None,
        age_seconds: float = 0,
    ) -> None:
        self.id = id
        self.attempt_id = attempt_id
        self.kind = kind
        self.payload = payload
        self.saved: JsonObject = saved or {}
        self.owner = owner
        self.role = role
        self.tags = tuple(tags)
        self.turn_count = turn_count
        self.failure_count = failure_count
        self.lost_count = lost_count
        self.waiting_on = waiting_on
        self.cleanup_of = cleanup_of
        self.secrets = dict(secrets or {})
        self.traceparent = traceparent
        self._link = link
        self._age = age_seconds
        self._built = time.monotonic()

    @property
    def log(self) -> "TurnLog":
        return TurnLog(self._link)

    @property
    def age(self) -> timedelta:
        """Since the job was first claimed, by the database's clock: what one turn saved of it another can compare."""
        return timedelta(seconds=self._age + time.monotonic() - self._built)

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        """Durable once this returns; replaces what was saved before. Progress forgives earlier failures and losses and
        begins the stall's time anew. What each try saves before it has done anything (a new name, a query's id) is no
        progress: a job that gets no further would be tried for ever."""
        await self._link.save(state, progress=progress)
        self.saved = state

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        """The same for a blocking handler in its child process."""
        self._link.save_blocking(state, progress=progress)
        self.saved = state

    def report(self, **progress: Any) -> None:
        """What a person sees: rows, bytes, percent, eta_seconds, phase. May be lost."""
        self._link.report(progress)


class TurnLog:
    def __init__(self, link: TurnLink) -> None:
        self._link = link

    def debug(self, message: str, **fields: Any) -> None:
        self._link.log("debug", message, fields)

    def info(self, message: str, **fields: Any) -> None:
        self._link.log("info", message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        self._link.log("warning", message, fields)

    def error(self, message: str, **fields: Any) -> None:
        self._link.log("error", message, fields)
