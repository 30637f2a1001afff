"""The parent's side of a child process: start it, hear it, kill it, reap it. The package says what is promised."""

import asyncio
import contextlib
import fcntl
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import IO

LAST_WORDS_BYTES = 16 * 1024
# As much as an ordinary login may give a pipe.
PIPE_BYTES = 1 << 20
_READ_BYTES = 64 * 1024

# Runs between fork and a program that is not ours, as a program of its own: Python code in a forked child of a process
# with threads can deadlock. It imports next to nothing, because its start is the program's.
_LAUNCHER = """
import ctypes, os, sys
{first}
parent, death_signal, limits, *command = sys.argv[1:]
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, int(death_signal), 0, 0, 0)
if os.getppid() != int(parent):
    sys.exit("whoever started this is gone")
for limit in limits.split():
    import resource
    what, value = map(int, limit.split("="))
    hard = resource.getrlimit(what)[1]
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))
os.execv(command[0], command)
"""


def launched(
    command: Sequence[str],
    *,
    death_signal: signal.Signals = signal.SIGKILL,
    limits: Mapping[int, int] | None = None,
    first: str = "",
) -> list[str]:
    """The command that becomes `command`, a program which cannot call `die_with` itself.

    It gets `death_signal` when its parent ends. `limits` maps RLIMIT_... to a value, lowered to what is allowed here.
    `first` is Python code that runs before all that, for example to become another account: that clears the signal."""
    lowered = " ".join(f"{what}={value}" for what, value in (limits or {}).items())
    program = _LAUNCHER.format(first=first)
    return [sys.executable, "-I", "-S", "-c", program, str(os.getpid()), str(int(death_signal)), lowered, *command]


def inherited(*names: str) -> dict[str, str]:
    """Those of our environment's variables that have these names."""
    return {name: os.environ[name] for name in names if name in os.environ}


def import_path() -> dict[str, str]:
    """The variable by which a Python of ours imports what we can import."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class ChildProcess:
    """One child of the running loop.

    It must be made on the loop's thread, not on one of a pool: the child dies with the thread that started it. Who
    makes one ends it with `end`. `stderr=PIPE` keeps the last words."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.DEVNULL,
        stderr: int | None = subprocess.PIPE,
        pass_fds: Sequence[int] = (),
        folder: str | None = None,
        own_group: bool = True,
    ) -> None:
        """Raises OSError when there is no such program, or no room for another process."""
        self._own_group = own_group
        self._words = bytearray()
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            cwd=folder,
            start_new_session=own_group,
        )
        self._pidfd: int | None = None
        with contextlib.suppress(AttributeError, OSError):  # not Linux, or a sandbox without this call
            self._pidfd = os.pidfd_open(self._process.pid)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                os.set_blocking(pipe.fileno(), False)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._attend()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """The status it ended with, or the negative number of a signal; None until it is reaped."""
        return self._process.returncode

    @property
    def alive(self) -> bool:
        """Asked of the kernel: the loop may not have heard of its end yet."""
        return self.returncode is None and os.waitid(os.P_PID, self.pid, _ENDED | os.WNOHANG) is None

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None, "it was started with stdin=PIPE"
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """Does not block: read it with `read`."""
        assert self._process.stdout is not None, "it was started with stdout=PIPE"
        return self._process.stdout

    @property
    def last_words(self) -> str:
        """The end of what it said on standard error; all of it is there once `wait` has returned."""
        return self._words.decode("utf-8", "replace")

    async def write(self, data: bytes) -> None:
        """Returns when all is in its standard input, or when it has ended and nobody will read it."""
        self._attend()
        fd, rest = self.stdin.fileno(), memoryview(data)
        os.set_blocking(fd, False)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                try:
                    rest = rest[os.write(fd, rest) :]
                except BlockingIOError:
                    await writable(fd)

    async def read(self, size: int) -> bytes:
        """Something of its standard output, nothing at its end."""
        self._attend()
        while True:
            try:
                return os.read(self.stdout.fileno(), size)
            except BlockingIOError:
                await readable(self.stdout.fileno())

    async def wait(self) -> int:
        """Waits until it has ended, whoever ended it, and was reaped. May be cancelled."""
        self._attend()
        await asyncio.shield(self._ended)
        assert self.returncode is not None
        return self.returncode

    def when_ended(self, call: Callable[[], None]) -> None:
        self._ended.add_done_callback(lambda _: call())

    def send_signal(self, number: signal.Signals) -> None:
        """To the process alone; not sent when it has ended."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """With all of its group, where it has one of its own. Does not wait."""
        if self.returncode is None:
            # A process that has ended but is not reaped keeps its id, so nobody else is hit.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                (os.killpg if self._own_group else os.kill)(self.pid, signal.SIGKILL)

    async def end(self, *, ask: signal.Signals | None = None, grace: float = 0.0) -> int:
        """Gives it `grace` seconds to end by itself, after the signal `ask`, then kills it.

        A cancelled caller gives up the grace, but goes on only when the process is gone."""
        try:
            if ask is not None:
                self.send_signal(ask)
            if grace > 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(grace):
                        await self.wait()
        finally:
            self.kill()
            try:
                self._attend()
                await _to_its_end(self._ended)
            finally:
                self.reap()
        assert self.returncode is not None
        return self.returncode

    def reap(self) -> None:
        """Takes note of the end and closes all descriptors. It blocks while the process lives."""
        self._take_note()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()

    def _attend(self) -> None:
        """From here on the running loop hears what it says, and reaps it.

        An engine that a test module shares has its spare child started on one loop and used on another."""
        loop = asyncio.get_running_loop()
        if self._loop is loop:
            return
        self._loop, self._ended = loop, loop.create_future()
        if self.returncode is not None:
            self._ended.set_result(None)
            return
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, self._take_note)
        else:
            threading.Thread(target=self._watch, args=(loop,), name=f"child-{self.pid}", daemon=True).start()
        if self._process.stderr is not None:
            loop.add_reader(self._process.stderr, self._listen)

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        os.waitid(os.P_PID, self.pid, _ENDED)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
            loop.call_soon_threadsafe(self._take_note)

    def _take_note(self) -> None:
        """Its group is killed before it is reaped: until then its id is not used again."""
        if self.returncode is None:
            if self._own_group:
                os.waitid(os.P_PID, self.pid, _ENDED)
                self.kill()
            self._process.wait()
        if self._pidfd is not None:
            self._forget(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None
        if self._process.stderr is not None and not self._process.stderr.closed:
            # No more than a pipe holds: a process that left the group may go on writing.
            for _ in range(PIPE_BYTES // _READ_BYTES):
                if not self._listen():
                    break
            self._forget(self._process.stderr.fileno())
            self._process.stderr.close()
        if not self._ended.done() and not self._ended.get_loop().is_closed():
            self._ended.set_result(None)

    def _listen(self) -> bool:
        """Whether something was heard."""
        assert self._process.stderr is not None
        try:
            said = os.read(self._process.stderr.fileno(), _READ_BYTES)
        except BlockingIOError:
            return False
        if not said:
            self._forget(self._process.stderr.fileno())
        self._words += said
        del self._words[:-LAST_WORDS_BYTES]
        return bool(said)

    def _forget(self, fd: int) -> None:
        assert self._loop is not None
        if not self._loop.is_closed():
            self._loop.remove_reader(fd)


# Looks whether a process has ended and leaves it to be reaped.
_ENDED = os.WEXITED | os.WNOWAIT


def large_pipe() -> tuple[int, int]:
    """The end to read, which does not block, and the end to give to a child."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    enlarge(ours)
    return ours, theirs


def enlarge(pipe: int) -> None:
    if sys.platform == "linux":
        # Refused when this login has too many pipes already: then it stays a smaller one.
        with contextlib.suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, PIPE_BYTES)


async def readable(fd: int) -> None:
    """Waits until something can be read, or never will be."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _set, ready)
    try:
        await ready
    finally:
        loop.remove_reader(fd)


async def writable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_writer(fd, _set, ready)
    try:
        await ready
    finally:
        loop.remove_writer(fd)


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


async def _to_its_end(future: asyncio.Future[None]) -> None:
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as problem:
            cancelled = problem
    if cancelled is not None:
        raise cancelled
