"""Runners as child processes: one that all async handlers share, and one for each blocking handler that runs.

A runner is spawned, never forked, so that it inherits no lock and no connection; it leads a process group of its own,
so that killing it also ends what its handlers started. All of it is cheap enough to throw away: whatever must stop
can be killed.
"""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import msgspec
import structlog

from paddock.child_processes.spawning import ChildProcess, import_path
from paddock.jobs import wire
from paddock.jobs.kinds import Kind
from paddock.worker import ipc
from paddock.worker.attempts import NEVER
from paddock.worker.guarding import Deadline, shared_memory
from paddock.worker.resources import is_blocking
from paddock.worker.running import RunnerOwner

# A spare runner for blocking handlers is kept this long; the last one for ever.
IDLE_SECONDS = 60.0
# A runner that closed its socket, or was asked to leave, has this long to end by itself.
LEAVE_SECONDS = 1.0
# glibc would keep a heap for each of up to eight threads per core, and what was freed in one helps none of the others:
# two of them hold up to a tenth more than one, for the same work. Arrow takes its memory from that one: an allocator of
# its own either keeps what Python could use or gives it back after every page. And the heap keeps its last 64 MiB:
# pages and row groups of megabytes come one after another, and to give each back and fault it in again is a quarter of
# a runner's time. An operator's own values win.
SMALL_HEAPS = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class RunnerOptions:
    """How a runner finds what it runs: `package.module:attribute` of a `Kinds` (or a function that gives one), and of
    a mapping from resource type to factory."""

    kinds: str
    resources: str | None = None
    log_level: str = "info"
    otel_endpoint: str | None = None
    # Settings that came to the supervisor as arguments, for what the runner loads itself. Never a secret.
    environment: Mapping[str, str] = field(default_factory=dict)

    def command(self, fd: int, deadline: int, *, blocking: bool) -> list[str]:
        command = [
            sys.executable,
            "-P",
            "-m",
            "paddock.worker.runner",
            "--fd",
            str(fd),
            "--supervisor",
            str(os.getpid()),
        ]
        command += ["--deadline", str(deadline), "--kinds", self.kinds, "--log-level", self.log_level]
        command += ["--resources", self.resources] if self.resources else []
        command += ["--otel-endpoint", self.otel_endpoint] if self.otel_endpoint else []
        return command + (["--blocking"] if blocking else [])


class ProcessRunner:
    killable = True

    def __init__(self, owner: RunnerOwner, options: RunnerOptions, *, shared: bool) -> None:
        self.shared = shared
        # Takes no more turns; was killed by us; is gone.
        self.doomed = False
        self.killed = False
        self.dead = False
        self.ended: asyncio.Task[None] | None = None
        # Whether a turn runs in it, and since when none does; only kept for one that is not shared.
        self.busy = False
        self.idle_since = 0.0
        # When it ends by itself unless it is told otherwise.
        self.guarded_until = NEVER
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        memory = shared_memory()
        self._deadline = Deadline(memory)
        try:
            with theirs:
                self._process = ChildProcess(
                    options.command(theirs.fileno(), memory, blocking=not shared),
                    # What an operator sets is for handlers too.
                    environment={**SMALL_HEAPS, **os.environ, **options.environment, **import_path()},
                    stdout=None,
                    stderr=None,
                    pass_fds=[theirs.fileno(), memory],
                )
        finally:
            os.close(memory)
        self._pipe = ipc.Pipe(ours, self._frame, self._gone)
        # The end of the socket is not enough: a process the handler forked may hold it open.
        self._process.when_ended(self._gone)

    @property
    def pid(self) -> int:
        return self._process.pid

    def start(self, job: wire.ClaimedJob) -> None:
        self.busy = True
        self._pipe.send(ipc.Start(job))

    def stop(self, attempt_id: UUID) -> None:
        self._pipe.send(ipc.Stop(attempt_id))
        if not self.shared:
            # What was interrupted halfway may have left anything behind: its process is not used again.
            self.doomed = True

    def saved(self, attempt_id: UUID, verdict: str, message: str | None) -> None:
        self._pipe.send(ipc.Saved(attempt_id, verdict, message))

    def guard(self, until: float) -> None:
        if until != self.guarded_until and not self.dead:
            self.guarded_until = until
            self._deadline.write(until)

    def kill(self) -> None:
        self.doomed = self.killed = True
        self._process.kill()

    def leave(self) -> None:
        """Asks it to go, by closing the socket."""
        self.doomed = True
        self._pipe.close()
        self._gone()

    def _frame(self, frame: bytes) -> None:
        try:
            messages = ipc.from_runner.decode(frame)
        except msgspec.MsgspecError as error:
            # A process that cannot speak cannot be believed: its turns fail with it.
            log.error("runner_spoke_nonsense", pid=self.pid, error=str(error))
            self._process.kill()
            return
        for message in messages:
            if isinstance(message, ipc.Ended):
                self._over()
                self._owner.ended(message.item())
            elif isinstance(message, ipc.Stopped):
                self._over()
                self._owner.stopped(message.attempt_id)
            elif isinstance(message, ipc.SaveAsked):
                self._owner.save(
                    wire.SaveItem(
                        id=message.id,
                        attempt_id=message.attempt_id,
                        saved=message.saved.copy(),
                        progress=message.progress,
                    )
                )
            elif isinstance(message, ipc.Reported):
                self._owner.report(message.attempt_id, message.progress)
            else:
                self._owner.log(message.attempt_id, message.lines, message.dropped_bytes)

    def _over(self) -> None:
        if not self.shared:
            self.busy = False
            self.idle_since = time.monotonic()
            if self.doomed:
                self._process.kill()

    def _gone(self) -> None:
        if self.ended is None:
            self.ended = self._loop.create_task(self._reap())

    async def _reap(self) -> None:
        """Waits until the process is gone."""
        how = _how(await self._process.end(grace=LEAVE_SECONDS))
        self._pipe.drain()  # what it said before it died counts
        self._pipe.close()
        self._deadline.close()
        self.dead = self.doomed = True
        self._owner.died(self, how)


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = "unknown signal"
    return f"was killed by {name} ({-code})"


class ProcessRunners:
    def __init__(self, options: RunnerOptions, *, warm_blocking: bool = False) -> None:
        self._options = options
        self._warm_blocking = warm_blocking
        self._owner: RunnerOwner
        self._shared: ProcessRunner | None = None
        self._blocking: list[ProcessRunner] = []
        # Until they are dead, whatever they are for.
        self._all: set[ProcessRunner] = set()

    def open(self, owner: RunnerOwner) -> None:
        self._owner = owner
        self._shared = self._spawn(shared=True)
        if self._warm_blocking:
            self._blocking.append(self._spawn(shared=False))

    def place(self, kind: Kind, job: wire.ClaimedJob) -> ProcessRunner:
        if not is_blocking(kind, job):
            if self._shared is None or self._shared.doomed or self._shared.ended is not None:
                self._shared = self._spawn(shared=True)
            return self._shared
        for runner in self._blocking:
            if not (runner.busy or runner.doomed or runner.ended):
                return runner
        runner = self._spawn(shared=False)
        self._blocking.append(runner)
        return runner

    def tend(self) -> None:
        self._all = {runner for runner in self._all if not runner.dead}
        self._blocking = [runner for runner in self._blocking if not runner.doomed]
        idle = [runner for runner in self._blocking if not runner.busy]
        for runner in idle[1:]:
            if time.monotonic() - runner.idle_since > IDLE_SECONDS:
                runner.leave()

    def kill_all(self) -> None:
        for runner in self._all:
            runner.kill()

    async def close(self) -> None:
        living = [runner for runner in self._all if not runner.dead]
        for runner in living:
            runner.leave()
        await asyncio.gather(*(runner.ended for runner in living if runner.ended is not None))

    def _spawn(self, *, shared: bool) -> ProcessRunner:
        runner = ProcessRunner(self._owner, self._options, shared=shared)
        self._all.add(runner)
        log.debug("runner_started", pid=runner.pid, shared=shared)
        return runner
