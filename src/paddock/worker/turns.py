"""Running handlers: the part that is the same in a runner process and inside the control plane.

Whatever a handler does, its turn ends in exactly one call of `ended` or `stopped`; nothing it raises, KeyboardInterrupt
and SystemExit included, reaches the loop.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Any
from uuid import UUID

import msgspec
from pydantic import BaseModel, ValidationError

from paddock import tracing
from paddock.jobs import wire
from paddock.jobs.errors import PermanentRunnerError, StaleAttempt
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import MAX_REPORT_BYTES, AttemptId, JobId, JsonObject, Verdict
from paddock.jobs.turn import Turn
from paddock.worker.ending import encoded_state, failure_of, item_for, payload_error
from paddock.worker.log_lines import log_line
from paddock.worker.resources import Resources, function_of
from paddock.worker.running import Owner

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

# The turn whose handler is running here, for records of the standard `logging`.
_current: ContextVar["TurnPort | None"] = ContextVar("paddock_turn", default=None)


class TurnPort:
    """A turn's `TurnLink`, made on the loop's thread and safe to use from any."""

    def __init__(self, job: wire.ClaimedJob, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self.id = job.id
        self.attempt_id = job.attempt_id
        self.begun = False
        self.stop_asked = False
        self._owner = owner
        self._loop = loop
        self._thread = threading.get_ident()
        self._saving: asyncio.Lock | None = None
        self._answer: asyncio.Future[tuple[str, str | None]] | None = None

    async def save(self, state: JsonObject, *, progress: bool = True) -> None:
        encoded = encoded_state(state)
        if self._saving is None:
            self._saving = asyncio.Lock()
        # One at a time: the order of two saves in one batch would be anybody's guess.
        async with self._saving:
            self._answer = self._loop.create_future()
            self._owner.save(wire.SaveItem(id=self.id, attempt_id=self.attempt_id, saved=encoded, progress=progress))
            verdict, message = await self._answer
        if verdict in (Verdict.ACCEPTED, Verdict.ALREADY_YOURS):
            return
        if verdict == Verdict.INVALID:
            raise PermanentRunnerError(message or "The saved state was refused.", code="invalid_saved")
        raise StaleAttempt(verdict)

    def save_blocking(self, state: JsonObject, *, progress: bool = True) -> None:
        if self._here():
            raise RuntimeError("save_blocking would block the loop: use `await turn.save(...)` in an async handler.")
        asyncio.run_coroutine_threadsafe(self.save(state, progress=progress), self._loop).result()

    def saved(self, verdict: str, message: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((verdict, message))

    def report(self, progress: JsonObject) -> None:
        encoded = _encode(progress)
        if len(encoded) > MAX_REPORT_BYTES:
            self.log("warning", f"A report of {len(encoded)} bytes was not sent; {MAX_REPORT_BYTES} are allowed.", {})
            return
        # Through JSON: a later change of the handler's objects must not change what was reported.
        self._hand_over(self._owner.report, self.attempt_id, _decode(encoded))

    def log(self, level: str, message: str, fields: Mapping[str, Any]) -> None:
        self._hand_over(self._owner.log, self.attempt_id, log_line(level, message, fields))

    def _hand_over(self, call: Any, *arguments: Any) -> None:
        if self._here():
            call(*arguments)
        else:
            self._loop.call_soon_threadsafe(call, *arguments)

    def _here(self) -> bool:
        return threading.get_ident() == self._thread


def build_turn(kind: Kind, job: wire.ClaimedJob, port: TurnPort) -> Turn[BaseModel]:
    try:
        payload = kind.payload.model_validate_json(bytes(job.payload))
    except ValidationError as error:
        raise payload_error(kind, error) from None
    return Turn(
        id=JobId(job.id),
        attempt_id=AttemptId(job.attempt_id),
        kind=job.kind,
        payload=payload,
        saved=None if job.saved is wire.NOTHING else _decode(job.saved),
        owner=job.owner,
        link=port,
        role=job.role,
        tags=job.tags,
        turn_count=job.turn_count,
        failure_count=job.failure_count,
        lost_count=job.lost_count,
        waiting_on=job.waiting_on,
        cleanup_of=None if job.cleanup_of is None else JobId(job.cleanup_of),
        secrets=job.secrets,
        traceparent=job.traceparent,
        age_seconds=job.age_seconds,
    )


class Turns:
    """Async handlers, each a task of the running loop."""

    def __init__(self, kinds: Kinds, resources: Resources, owner: Owner) -> None:
        self._kinds = kinds
        self._resources = resources
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._running: dict[UUID, tuple[TurnPort, asyncio.Task[None]]] = {}

    def start(self, job: wire.ClaimedJob) -> None:
        port = TurnPort(job, self._owner, self._loop)
        task = self._loop.create_task(self._run(self._kinds[job.kind], job, port))
        self._running[job.attempt_id] = (port, task)

    def stop(self, attempt_id: UUID) -> None:
        if found := self._running.get(attempt_id):
            port, task = found
            port.stop_asked = True
            # A task cancelled before its first step never runs, and so would never say that it has stopped.
            if port.begun:
                task.cancel()

    def saved(self, attempt_id: UUID, verdict: str, message: str | None) -> None:
        if found := self._running.get(attempt_id):
            found[0].saved(verdict, message)

    async def _run(self, kind: Kind, job: wire.ClaimedJob, port: TurnPort) -> None:
        _current.set(port)
        port.begun = True
        item: wire.FinishItem | None
        try:
            if port.stop_asked:
                raise asyncio.CancelledError
            function = function_of(kind, job)
            if function is None:
                raise no_cleanup(kind)
            turn = build_turn(kind, job, port)
            with turn_span(job):
                item = item_for(job, await function(turn, **self._resources.for_handler(function)))
        except StaleAttempt:
            item = None
        except BaseException as error:  # every exception gets a verdict; KeyboardInterrupt would end the loop
            if isinstance(error, GeneratorExit) and not self._runs(job):
                raise  # the loop is gone, and with it everybody who could hear an outcome
            item = None if cancelled_on_request(error, port) else failure_of(kind, job, error)
        del self._running[job.attempt_id]
        if item is None:
            self._owner.stopped(job.attempt_id)
        else:
            self._owner.ended(item)

    def _runs(self, job: wire.ClaimedJob) -> bool:
        """Whether the loop runs this turn just now. It does not when its coroutine is closed from outside, which raises
        GeneratorExit in it as a handler may."""
        try:
            return asyncio.current_task() is self._running[job.attempt_id][1]
        except RuntimeError:
            return False


def turn_span(job: wire.ClaimedJob) -> AbstractContextManager[tracing.Span]:
    # The id as text only where somebody collects traces: this is on every job's path.
    traced = None if job.traceparent is None else str(job.id)
    return tracing.span("turn", parent=job.traceparent, kind=job.kind, job=traced)


def cancelled_on_request(error: BaseException, port: TurnPort) -> bool:
    return port.stop_asked and isinstance(error, asyncio.CancelledError)


def no_cleanup(kind: Kind) -> PermanentRunnerError:
    return PermanentRunnerError(
        f"Kind '{kind.name}' has no cleanup in this version of the worker.",
        code="no_cleanup",
        hint="Upgrade the worker, then retry the job.",
    )


class TurnRecords(logging.Handler):
    """Records of the standard `logging` made inside a turn go to its job's log."""

    def emit(self, record: logging.LogRecord) -> None:
        port = _current.get()
        if port is None:
            return
        try:
            message = self.format(record)
        except Exception as error:  # a library's bad format arguments must not surface in its caller
            message = f"log record from {record.name} could not be formatted: {type(error).__name__}"
        port.log(record.levelname.lower(), message, {})


def collect_records() -> None:
    """Adds `TurnRecords` to the root logger, once."""
    root = logging.getLogger()
    if not any(isinstance(handler, TurnRecords) for handler in root.handlers):
        root.addHandler(TurnRecords())


def in_turn() -> bool:
    return _current.get() is not None


def enter_turn(port: TurnPort | None) -> None:
    """For a blocking handler, which has no task and so no context of its own."""
    _current.set(port)
