"""Kinds for the worker's tests, loaded by the test and by its runner processes."""

import asyncio
import contextlib
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict

from paddock.jobs.errors import PermanentRunnerError, StaleAttempt, TransientResourceError
from paddock.jobs.kinds import Kind, Kinds
from paddock.jobs.model import NewEvent, NewJob
from paddock.jobs.outcomes import Outcome, again, done, permanent
from paddock.jobs.probe import PROBE, PROBE_BLOCKING
from paddock.jobs.turn import Turn

SHORT = timedelta(milliseconds=200)


class Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class Strict(BaseModel):
    number: int


class Greeter:
    def __init__(self, greeting: str = "hello") -> None:
        self.greeting = greeting


class Odd(BaseException):
    pass


class Speechless(BaseException):
    def __str__(self) -> str:
        raise Odd


RESOURCES = {Greeter: Greeter}

T = Turn[Anything]


def said(turn: T) -> dict[str, Any]:
    return turn.payload.model_extra or {}


async def noop(turn: T) -> Outcome:
    return done()


async def echo(turn: T, greeter: Greeter, optional: int = 7) -> Outcome:
    return done(
        {"said": said(turn), "saved": turn.saved, "turn": turn.turn_count, "greeting": greeter.greeting, "n": optional}
    )


async def raises(turn: T) -> Outcome:
    errors: dict[str, BaseException] = {
        "transient": TransientResourceError(
            "No nodes.", code="no_nodes", hint="Wait.", budget="cluster", delay=timedelta(seconds=7)
        ),
        "permanent": PermanentRunnerError("Role denied.", code="role_denied", hint="Ask."),
        "value": ValueError("bad thing with password=hunter2"),
        "stale": StaleAttempt(),
        "interrupt": KeyboardInterrupt(),
        "exit": SystemExit(3),
        "cancelled": asyncio.CancelledError(),
        "closed": GeneratorExit("done"),
        "odd": Odd("odd"),
        "speechless": Speechless(),
        "long": RuntimeError("x" * 100_000),
        "nul": RuntimeError("a\x00b\ud800c"),
    }
    raise errors[said(turn)["error"]]


def raises_blocking(turn: T) -> Outcome:
    raise SystemExit(said(turn).get("code", 3))


async def bad_outcome(turn: T) -> Any:
    return "fine"


async def bad_result(turn: T) -> Outcome:
    what = said(turn)["what"]
    return done(object() if what == "object" else "\ud800" if what == "surrogate" else "x" * 300_000)


async def forever(turn: T) -> Outcome:
    """Ends only when cancelled, after saying so."""
    turn.report(phase="running")
    try:
        await asyncio.Event().wait()
    finally:
        turn.log.info("stopped")
    return done()


async def deaf(turn: T) -> Outcome:
    turn.report(phase="running")
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue


async def late(turn: T) -> Outcome:
    """Ends by itself after a while."""
    turn.report(phase="running")
    await asyncio.sleep(said(turn).get("seconds", 0.5))
    return done("late")


def hold_the_interpreter(seconds: float) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    ctypes.PyDLL(None).usleep(ctypes.c_uint(int(seconds * 1_000_000)))


async def stuck(turn: T) -> Outcome:
    """Blocks in C, with the interpreter's lock, on the shared loop."""
    turn.log.info("stuck")
    turn.report(phase="running")
    until = time.monotonic() + 0.3  # the report must leave the process
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(left)
    hold_the_interpreter(said(turn).get("seconds", 600))
    return done("unstuck")


def stuck_blocking(turn: T) -> Outcome:
    turn.report(phase="running")
    until = time.monotonic() + 0.6  # another thread sends it
    while (left := until - time.monotonic()) > 0:
        with contextlib.suppress(BaseException):
            time.sleep(left)
    hold_the_interpreter(said(turn).get("seconds", 600))
    return done("unstuck")


def sleeper(turn: T) -> Outcome:
    """Blocks in Python: stopped by an exception, so that it can clean up."""
    turn.report(phase="running")
    try:
        time.sleep(3600)
    finally:
        if path := said(turn).get("path"):
            with open(path, "w") as file:
                file.write("cleaned up")
    return done()


def blocking_pid(turn: T) -> Outcome:
    turn.save_blocking({"pid": os.getpid()})
    return done(os.getpid())


def leaves_a_child(turn: T) -> Outcome:
    """A process of the handler's own, which must not outlive the runner."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    turn.report(child=child.pid)
    time.sleep(3600)
    return done()


async def effects(turn: T) -> Outcome:
    """Writes the time to a file, for ever: an effect that no fence guards."""
    turn.report(phase="running")
    while True:
        write_time(said(turn)["path"])
        await asyncio.sleep(0.02)


def effects_of_a_child(turn: T) -> Outcome:
    """The same by a process that the handler started."""
    code = "import sys, time; from tests.worker.kinds import write_time\nwhile True: write_time(sys.argv[1]); time.sleep(0.02)"
    child = subprocess.Popen([sys.executable, "-c", code, said(turn)["path"]])
    turn.report(child=child.pid)
    time.sleep(3600)
    return done()


def write_time(path: str) -> None:
    with open(path, "a") as file:
        file.write(f"{time.monotonic()}\n")


async def saver(turn: T) -> Outcome:
    """Saves until the job is no longer its own, or `most` times and then never again."""
    for number in range(100_000):
        if number == said(turn).get("most"):
            await asyncio.Event().wait()
        try:
            await turn.save({"number": number}, progress=said(turn).get("progress", True))
        except StaleAttempt:
            if path := said(turn).get("path"):
                with open(path, "w") as file:
                    file.write("stale")
            if said(turn).get("ignore"):
                await asyncio.Event().wait()
            raise
        await asyncio.sleep(0.02)
    return done()


async def saves_once(turn: T) -> Outcome:
    await turn.save({"number": 1})
    return done()


async def saves_at_once(turn: T) -> Outcome:
    await asyncio.gather(*(turn.save({"number": number}) for number in range(20)))
    return done()


async def saves_too_much(turn: T) -> Outcome:
    await turn.save({"blob": "x" * 100_000})
    return done()


async def talks(turn: T) -> Outcome:
    logging.getLogger("some.library").warning("a library says %s", "hello")
    turn.log.info("two\nlines", token="pdk_secret", rows=3)
    await asyncio.to_thread(turn.log.info, "from a thread")
    return done()


async def chatters(turn: T) -> Outcome:
    for _ in range(4_000):
        turn.log.info("x" * 100)
    return done()


async def reports(turn: T) -> Outcome:
    for percent in range(100):
        turn.report(percent=percent)
        await asyncio.sleep(0.01)
    return done()


async def parent(turn: T) -> Outcome:
    if turn.turn_count < 3:
        return again(saved={"turn": turn.turn_count}, progress=turn.turn_count == 1)
    child = NewJob("late", {"seconds": 0.01})
    return done("parent", events=[NewEvent("parent.done", str(turn.id))], follow_ups=[child])


async def fails(turn: T) -> Outcome:
    return permanent("no", "It cannot be done.")


async def clean(turn: T) -> Outcome:
    return done({"removed": turn.saved})


def kind(name: str, handler: Any, **rest: Any) -> Kind:
    return Kind(name=name, payload=rest.pop("payload", Anything), handler=handler, **rest)


KINDS = Kinds(
    [
        PROBE,
        PROBE_BLOCKING,
        kind("noop", noop),
        kind("echo", echo),
        kind("strict", noop, payload=Strict),
        kind("raises", raises),
        kind("raises_permanent", raises, retry_unclassified=False),
        kind("raises_blocking", raises_blocking),
        kind("bad_outcome", bad_outcome),
        kind("bad_result", bad_result),
        kind("forever", forever, grace=SHORT, cleanup=clean),
        kind("deaf", deaf, grace=SHORT),
        kind("late", late),
        kind("patient", late, grace=timedelta(minutes=5)),
        kind("stuck", stuck, grace=SHORT),
        kind("stuck_blocking", stuck_blocking, grace=SHORT),
        kind("sleeper", sleeper, grace=SHORT),
        kind("blocking_pid", blocking_pid),
        kind("leaves_a_child", leaves_a_child, grace=SHORT),
        kind("outside", forever, grace=SHORT, effects_outside_fence=True),
        kind("outside_deaf", deaf, grace=timedelta(minutes=5), effects_outside_fence=True),
        kind("outside_stuck", stuck, grace=SHORT, effects_outside_fence=True),
        kind("effects", effects, grace=SHORT, effects_outside_fence=True),
        kind("effects_of_a_child", effects_of_a_child, grace=SHORT, effects_outside_fence=True),
        kind("fails_on_shutdown", forever, grace=SHORT, fail_on_shutdown=True),
        kind("fails_on_stall", forever, grace=SHORT, stall_fails="Nothing came in time."),
        kind("alone", late, concurrency=1),
        kind("saver", saver, grace=SHORT),
        kind("saves_once", saves_once),
        kind("saves_at_once", saves_at_once),
        kind("saves_too_much", saves_too_much),
        kind("talks", talks),
        kind("chatters", chatters),
        kind("reports", reports),
        kind("parent", parent),
        kind("fails", fails),
    ]
)
