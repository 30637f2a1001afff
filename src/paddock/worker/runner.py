"""The child process that runs handlers: `python -m paddock.worker.runner`.

It dies with its supervisor, by signal where the system offers that and by the end of the socket everywhere. Signals
from a terminal or a service manager are for the supervisor: here they do nothing, so that a turn keeps its grace.
"""

import argparse
import asyncio
import contextlib
import importlib
import logging
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import uvloop

from paddock import garbage, log, tracing
from paddock.child_processes.beginning import die_with
from paddock.jobs import wire
from paddock.jobs.errors import StaleAttempt
from paddock.jobs.kinds import Kinds
from paddock.worker import ipc
from paddock.worker.ending import failure_of, item_for
from paddock.worker.guarding import Deadline, Guard
from paddock.worker.log_lines import BYTES_PER_SECOND, LogBuffers
from paddock.worker.resources import Factories, Resources, from_entry_points, function_of
from paddock.worker.turns import (
    TurnPort,
    Turns,
    build_turn,
    collect_records,
    enter_turn,
    in_turn,
    no_cleanup,
    turn_span,
)

# Reports and lines gather this long before they go to the supervisor.
GATHER = 0.25
# How long a thread that decodes keeps the interpreter once the loop wants it; Python's own 5 ms add up over threads.
SWITCH_SECONDS = 0.001


class Upstream:
    """The `Owner` of the turns in this process: passes everything on to the supervisor."""

    def __init__(self, end: socket.socket, receive: Callable[[ipc.ToRunner], None], guard: Guard) -> None:
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._pipe = ipc.Pipe(end, self._frame, leave)
        self._receive = receive
        self._reports: dict[UUID, dict[str, Any]] = {}
        self._logs: LogBuffers[UUID] = LogBuffers(int(BYTES_PER_SECOND * GATHER))
        self._timer: asyncio.TimerHandle | None = None

    def ended(self, item: wire.FinishItem) -> None:
        self._guard.over(item.attempt_id)
        self._pass_on()
        self._pipe.send(
            ipc.Ended(
                id=item.id,
                attempt_id=item.attempt_id,
                outcome=item.outcome,
                result=item.result if item.result is not None else ipc.ABSENT,
                error=item.error,
                saved=item.saved if item.saved is not None else ipc.ABSENT,
                delay_seconds=item.delay_seconds,
                progress=item.progress,
                waiting_on=item.waiting_on,
                budget=item.budget,
                unclassified=item.unclassified,
                events=item.events,
                follow_ups=item.follow_ups,
            )
        )

    def stopped(self, attempt_id: UUID) -> None:
        self._guard.over(attempt_id)
        self._pass_on()
        self._pipe.send(ipc.Stopped(attempt_id))

    def save(self, item: wire.SaveItem) -> None:
        self._pipe.send(ipc.SaveAsked(item.id, item.attempt_id, item.saved, item.progress))

    def report(self, attempt_id: UUID, progress: dict[str, Any]) -> None:
        self._reports[attempt_id] = progress
        self._soon()

    def log(self, attempt_id: UUID, lines: str, dropped_bytes: int = 0) -> None:
        self._logs.add(attempt_id, lines, dropped_bytes)
        self._soon()

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(GATHER, self._pass_on)

    def _pass_on(self) -> None:
        if self._timer is None:
            return
        self._timer.cancel()
        self._timer = None
        reports, self._reports = self._reports, {}
        for attempt_id, progress in reports.items():
            self._pipe.send(ipc.Reported(attempt_id, progress))
        for attempt_id, lines, dropped in self._logs.take():
            self._pipe.send(ipc.Logged(attempt_id, lines, dropped))

    def _frame(self, frame: bytes) -> None:
        for message in ipc.to_runner.decode(frame):
            self._receive(message)


def leave() -> None:
    """The supervisor is gone, or wants this process gone. `_exit`: a stuck handler's thread must not hold it up."""
    with contextlib.suppress(Exception):
        tracing.shutdown()
    os._exit(0)


async def host_async(end: socket.socket, kinds: Kinds, resources: Resources, guard: Guard) -> None:
    """Many async handlers on this loop."""

    def receive(message: ipc.ToRunner) -> None:
        if isinstance(message, ipc.Start):
            if kinds[message.job.kind].effects_outside_fence:
                guard.begin(message.job.attempt_id)
            turns.start(message.job)
        elif isinstance(message, ipc.Stop):
            turns.stop(message.attempt_id)
        else:
            turns.saved(message.attempt_id, message.verdict, message.message)

    turns = Turns(kinds, resources, Upstream(end, receive, guard))
    await asyncio.Event().wait()


class TurnStopped(BaseException):
    """Raised inside a blocking handler that must end. Not an Exception: `except Exception` should not stop it."""


class BlockingHost:
    """One blocking handler at a time on the main thread, where a signal can interrupt it; the socket is served by a
    loop on a thread of its own."""

    def __init__(self, kinds: Kinds, resources: Resources, guard: Guard) -> None:
        self._guard = guard
        self._kinds = kinds
        self._resources = resources
        self._jobs: queue.SimpleQueue[tuple[wire.ClaimedJob, TurnPort]] = queue.SimpleQueue()
        self._port: TurnPort | None = None
        self._stoppable = False
        self._main = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop
        self._upstream: Upstream

    def run(self, end: socket.socket) -> None:
        signal.signal(signal.SIGTERM, self._on_signal)
        threading.Thread(target=lambda: uvloop.run(self._serve(end)), name="upstream", daemon=True).start()
        while True:
            job, port = self._jobs.get()
            item = self._turn(job, port)
            if item is None:
                self._loop.call_soon_threadsafe(self._upstream.stopped, job.attempt_id)
            else:
                self._loop.call_soon_threadsafe(self._upstream.ended, item)

    def _turn(self, job: wire.ClaimedJob, port: TurnPort) -> wire.FinishItem | None:
        enter_turn(port)
        kind = self._kinds[job.kind]
        try:
            try:
                function = function_of(kind, job)
                if function is None:
                    raise no_cleanup(kind)
                turn = build_turn(kind, job, port)
                given = self._resources.for_handler(function)
                with turn_span(job):
                    # A stop that came before this line: the signal was ignored, so look.
                    self._stoppable = True
                    if port.stop_asked:
                        raise TurnStopped
                    outcome = function(turn, **given)
                    self._stoppable = False
                return item_for(job, outcome)
            finally:
                self._stoppable = False
        except (StaleAttempt, TurnStopped):
            return None
        except BaseException as error:  # every exception gets a verdict, SystemExit too
            return failure_of(kind, job, error)
        finally:
            enter_turn(None)

    def _on_signal(self, number: int, frame: object) -> None:
        """Only a stop that the supervisor asked for counts: service managers send SIGTERM to every process."""
        if self._stoppable and self._port is not None and self._port.stop_asked:
            self._stoppable = False
            raise TurnStopped

    async def _serve(self, end: socket.socket) -> None:
        self._loop = asyncio.get_running_loop()
        self._upstream = Upstream(end, self._receive, self._guard)
        await asyncio.Event().wait()

    def _receive(self, message: ipc.ToRunner) -> None:
        if isinstance(message, ipc.Start):
            if self._kinds[message.job.kind].effects_outside_fence:
                self._guard.begin(message.job.attempt_id)
            self._port = TurnPort(message.job, self._upstream, self._loop)
            self._jobs.put((message.job, self._port))
        elif self._port is None or self._port.attempt_id != message.attempt_id:
            pass
        elif isinstance(message, ipc.Stop):
            self._port.stop_asked = True
            signal.pthread_kill(self._main, signal.SIGTERM)
        else:
            self._port.saved(message.verdict, message.message)


class OtherRecords(logging.Handler):
    """Records made outside every turn go to stderr like the supervisor's. What that takes is imported with the first
    one: it is half of the time a runner needs to start."""

    def __init__(self, level: str) -> None:
        super().__init__()
        self._configured = False
        self._level_name = level

    def emit(self, record: logging.LogRecord) -> None:
        if not in_turn() and not self._configured:
            self._configured = True
            log.configure(self._level_name)
            logging.getLogger().handle(record)


def named(spec: str) -> Any:
    """`package.module:attribute`, called if it is a function."""
    module, _, attribute = spec.partition(":")
    found = getattr(importlib.import_module(module), attribute)
    return found() if callable(found) else found


def main() -> None:
    parser = argparse.ArgumentParser(prog="paddock.worker.runner")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--supervisor", type=int, required=True)
    parser.add_argument("--deadline", type=int, required=True)
    parser.add_argument("--kinds", required=True)
    parser.add_argument("--resources")
    parser.add_argument("--blocking", action="store_true")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--otel-endpoint")
    options = parser.parse_args()
    die_with(options.supervisor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: None)  # not SIG_IGN: programs a handler starts would inherit that
    end = socket.socket(fileno=options.fd)
    end.set_inheritable(False)
    guard = Guard(Deadline(options.deadline))
    os.close(options.deadline)
    logging.getLogger().setLevel(options.log_level.upper())
    logging.getLogger().addHandler(OtherRecords(options.log_level))
    collect_records()
    tracing.configure(options.otel_endpoint, "paddock-worker")
    kinds: Kinds = named(options.kinds)
    ours: Factories = named(options.resources) if options.resources else {}
    others, _ = from_entry_points()  # what is missing is in the log, and fails the handlers that need it
    resources = Resources(factories={**others, **ours})
    garbage.settle()
    if options.blocking:
        BlockingHost(kinds, resources, guard).run(end)
    else:
        sys.setswitchinterval(SWITCH_SECONDS)
        uvloop.run(host_async(end, kinds, resources, guard))


if __name__ == "__main__":
    main()
