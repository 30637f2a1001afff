"""The `probe` kind does what its payload says: the demo, `paddock doctor`, the tests and the chaos runs use it.

`probe` is async, `probe_blocking` the same as a blocking handler in a process of its own. One script tells what happens;
two small drivers carry it out.
"""

import asyncio
import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.kinds import Backoff, Kind
from paddock.jobs.model import Budget, JsonObject
from paddock.jobs.outcomes import Outcome, again, done, permanent, transient
from paddock.jobs.turn import Turn

LEDGER_SUFFIX = ".ledger"


class ProbePayload(BaseModel):
    """Everything happens in each turn unless it says otherwise."""

    model_config = ConfigDict(extra="forbid")

    turns: int = Field(default=1, ge=1, le=1_000, description="How many turns; all but the last end in `again`.")
    turn_delay_seconds: float = Field(default=0, ge=0, le=86_400, description="From one turn to the next.")
    waiting_on: str | None = Field(default=None, max_length=100, description="Between turns it reads `submitted`.")
    progress: int = Field(default=0, ge=0, le=10_000, description="Steps, each with a report.")
    save_each_step: bool = Field(default=False, description="Saves after each step; a later turn goes on from there.")
    sleep_seconds: float = Field(default=0, ge=0, le=86_400, description="Spread over the steps.")
    block_seconds: float = Field(default=0, ge=0, le=3_600, description="In C code that holds the interpreter's lock.")
    allocate_mb: int = Field(default=0, ge=0, le=65_536, description="Memory held until the turn ends.")
    log_lines: int = Field(default=0, ge=0, le=100_000, description="Lines to log.")
    fail_transiently: int = Field(default=0, ge=0, le=100, description="How many times before it goes on.")
    budget: Budget = Field(default="work", description="Which budget those failures spend.")
    fail: str | None = Field(default=None, max_length=1_000, description="Fails for good with this message.")
    raise_unclassified: str | None = Field(default=None, max_length=1_000, description="Raises RuntimeError with it.")
    crash: Literal["kill", "exit", "segfault"] | None = Field(default=None, description="Ends its own process.")
    crash_times: int = Field(default=1, ge=1, le=100, description="How many failures before it no longer crashes.")
    ignore_cancellation: bool = Field(default=False, description="Keeps sleeping when asked to stop.")
    leave: str | None = Field(default=None, max_length=200, description="Something to clean up, by name.")
    lock: str | None = Field(default=None, min_length=1, max_length=200, description="The lock it holds.")
    ledger: str | None = Field(default=None, max_length=1_000, description="An existing file that gets `job attempt`.")
    result: JsonValue = Field(default=None, description="What it completes with.")

    @field_validator("ledger")
    @classmethod
    def _only_ledgers(cls, path: str | None) -> str | None:
        """Whoever may submit a probe must not be able to write into any other file of the worker."""
        if path is not None and not path.endswith(LEDGER_SUFFIX):
            raise ValueError(f"a ledger's name ends with {LEDGER_SUFFIX}")
        return path


ProbeTurn = Turn[ProbePayload]
# A number of seconds to sleep, or a state to save.
Script = Generator[float | JsonObject, None, Outcome]


def _script(turn: ProbeTurn) -> Script:
    payload, state = turn.payload, dict(turn.saved)
    if payload.leave is not None and "left" not in state:
        state["left"] = payload.leave
        yield state
    for number in range(payload.log_lines):
        turn.log.info("probe line", number=number)
    memory = bytearray(payload.allocate_mb << 20)
    if payload.crash is not None and turn.failure_count < payload.crash_times:
        _crash(payload.crash)
    if payload.block_seconds:
        _block(payload.block_seconds)
    yield from _steps(turn, state)
    del memory
    if (failed := _failures(turn, state)) < payload.fail_transiently:
        if payload.budget == "cluster":
            state["failed"] = failed + 1
            yield state
        return transient(
            "probe_transient",
            f"Failure {failed + 1} of {payload.fail_transiently}, as asked for.",
            budget=payload.budget,
        )
    if payload.raise_unclassified is not None:
        raise RuntimeError(payload.raise_unclassified)
    if payload.fail is not None:
        return permanent("probe_failed", payload.fail, hint="It was asked to fail; ask for something else.")
    if payload.ledger is not None:
        _write_ledger(payload.ledger, turn)
    ended = int(state.get("turn", 0)) + 1
    if ended < payload.turns:
        state = {name: value for name, value in state.items() if name != "step"} | {"turn": ended}
        return again(timedelta(seconds=payload.turn_delay_seconds), waiting_on=payload.waiting_on, saved=state)
    return done(payload.result)


def _steps(turn: ProbeTurn, state: JsonObject) -> Generator[float | JsonObject, None, None]:
    payload = turn.payload
    steps = max(payload.progress, 1)
    for step in range(int(state.get("step", 0)), steps):
        if payload.sleep_seconds:
            yield payload.sleep_seconds / steps
        if payload.progress:
            turn.report(percent=round(100 * (step + 1) / steps, 1), step=step + 1, steps=steps)
        if payload.save_each_step:
            state["step"] = step + 1
            yield state


def _failures(turn: ProbeTurn, state: JsonObject) -> int:
    """A save forgives failures of the `work` budget only, so the others can be counted in the saved state."""
    return int(state.get("failed", 0)) if turn.payload.budget == "cluster" else turn.failure_count


def _block(seconds: float) -> None:
    """One call that keeps the interpreter's lock. Signals wait: they would wake it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1_000_000)))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _crash(how: str) -> None:
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "segfault":
        # Not what faulthandler of an embedding program makes of it: the plain death.
        signal.signal(signal.SIGSEGV, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGSEGV)
    os._exit(3)


def _write_ledger(path: str, turn: ProbeTurn) -> None:
    """One short write to a file opened for appending: whole lines, whoever else writes."""
    try:
        ledger = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise PermanentRunnerError(f"The ledger cannot be opened: {error.strerror}.", code="probe_ledger") from error
    try:
        os.write(ledger, f"{turn.id} {turn.attempt_id}\n".encode())
    finally:
        os.close(ledger)


async def run_probe(turn: ProbeTurn) -> Outcome:
    script = _script(turn)
    while True:
        try:
            action = next(script)
        except StopIteration as end:
            return _outcome(end)
        if isinstance(action, dict):
            await turn.save(dict(action))
            continue
        until = time.monotonic() + action
        while (left := until - time.monotonic()) > 0:
            with _ignoring_cancellation(turn.payload.ignore_cancellation):
                await asyncio.sleep(left)


def run_probe_blocking(turn: ProbeTurn) -> Outcome:
    script = _script(turn)
    while True:
        try:
            action = next(script)
        except StopIteration as end:
            return _outcome(end)
        if isinstance(action, dict):
            turn.save_blocking(dict(action))
            continue
        until = time.monotonic() + action
        while (left := until - time.monotonic()) > 0:
            with _ignoring_cancellation(turn.payload.ignore_cancellation):
                time.sleep(left)


def _ignoring_cancellation(ignores: bool) -> contextlib.AbstractContextManager[None]:
    return contextlib.suppress(BaseException) if ignores else contextlib.nullcontext()


def _outcome(end: StopIteration) -> Outcome:
    outcome: Outcome = end.value
    return outcome


async def clean_probe(turn: ProbeTurn) -> Outcome:
    """Removes what was left: here, says its name."""
    return done({"removed": turn.saved.get("left")})


PROBE = Kind(
    name="probe",
    payload=ProbePayload,
    handler=run_probe,
    cleanup=clean_probe,
    submit=frozenset({"ops", "admin"}),
    retry=Backoff(first=timedelta(seconds=1), cap=timedelta(seconds=10)),
    lock_key=lambda payload: payload.lock,
    public_saved=("turn", "step", "left"),
)

PROBE_BLOCKING = replace(PROBE, name="probe_blocking", handler=run_probe_blocking)
