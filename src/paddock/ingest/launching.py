"""The worker's side of a command: started through `launcher.py`, heard line by line, ended for sure.

A command sees the environment that it is given and a private folder with `in` and `out`. What it says goes into the log of
the job; the last lines stay with a failure. `run` returns when the command and all that it started are gone.
"""

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.child_processes.spawning import ChildProcess, inherited, readable
from paddock.ingest.hiding import hidden_lines, without

if TYPE_CHECKING:
    from paddock.storage.scratch import Scratch

GRACE = timedelta(seconds=10)
LAST_LINES = 20
LONGEST_LINE = 4_000
# How much of what a command says goes into the log of its job. One that says more slows nobody down but itself.
LINES_A_SECOND = 1_000
# What a file of a command may grow to: one byte more than is read, so that too much is seen as too much.
FILE_BYTES = (256 << 20) + 1
LONGEST_MESSAGE = 1 << 20
# After a last line without an end, so that nobody takes it for a whole one.
TORN = b" (torn)"
LAUNCHER = Path(__file__).with_name("launcher.py")


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """How a command ended. `exit` is negative for a signal; None: it could not be started, and `problem` says why."""

    exit: int | None
    stopped: str | None
    problem: str | None
    message: str | None
    last_lines: Sequence[str]


@dataclass(frozen=True, slots=True)
class StepFolder:
    """The private folder of one command, gone afterwards. `out` is held open, so that nobody can put another in its place."""

    path: Path
    out_fd: int
    # What Paddock itself put into it. It counts against the scratch space like other files there.
    taken: list[int]
    scratch: "Scratch"

    def take(self, size: int) -> None:
        self.scratch.take(size)
        self.taken.append(size)

    @property
    def inputs(self) -> Path:
        return self.path / "in"

    @property
    def outputs(self) -> Path:
        return self.path / "out"


@contextlib.contextmanager
def step_folder(scratch: "Scratch", name: str) -> Iterator[StepFolder]:
    path = scratch.folder / name
    path.mkdir(mode=0o700)
    out_fd = -1
    taken: list[int] = []
    try:
        for part in ("in", "out"):
            (path / part).mkdir(mode=0o700)
        out_fd = os.open(path / "out", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        yield StepFolder(path, out_fd, taken, scratch)
    finally:
        if out_fd >= 0:
            os.close(out_fd)
        shutil.rmtree(path, ignore_errors=True)
        scratch.give(sum(taken))


async def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    timeout: timedelta,
    memory: int,
    log: Callable[[str], None],
    messages: "Messages | None" = None,
    hidden: Sequence[str] = (),
) -> CommandEnd:
    """With `messages` the command's standard output goes there, and only its errors are its log. `hidden` are values that a
    command may print and nobody may read."""
    ours, theirs = os.pipe()
    os.set_blocking(ours, False)
    given = [] if messages is None else [messages.theirs]
    try:
        child = ChildProcess(
            [sys.executable, "-I", "-S", str(LAUNCHER)],
            environment=inherited("PATH", "LANG", "LC_ALL", "TZ"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[theirs, *given],
        )
    finally:
        os.close(theirs)
        if messages is not None:
            messages.close_theirs()
    asked = {
        "command": [*command],
        "environment": {**inherited("PATH", "LANG", "LC_ALL", "TZ"), **environment},
        "folder": str(folder),
        "timeout": timeout.total_seconds(),
        "memory": memory,
        "file": FILE_BYTES,
        "grace": GRACE.total_seconds(),
        "report": theirs,
        **({} if messages is None else {"messages": given[0]}),
    }
    if messages is not None:
        messages.stopping = lambda: _stop(child)
    last: deque[str] = deque(maxlen=LAST_LINES)
    try:
        await child.write(json.dumps(asked).encode() + b"\n")
        await _hear(child, _Hearing(log, last, hidden_lines(hidden)))
        return _ended(await _report(ours), [*last])
    finally:
        # Told to stop, the launcher gives the command its grace and then kills all that it has; only when it is gone is
        # nothing left. Killed itself, it would leave behind what left the command's group.
        _stop(child)
        await asyncio.shield(_gone(child))
        os.close(ours)


def _stop(child: ChildProcess) -> None:
    """Nothing to do for one that has ended: its pipe is broken, or closed already (ValueError)."""
    with contextlib.suppress(OSError, ValueError):
        child.stdin.write(b"stop\n")
        child.stdin.flush()


class Messages:
    """A command's standard output as lines, in the order it says them. It waits while nobody reads."""

    def __init__(self) -> None:
        self._ours, self.theirs = os.pipe()
        os.set_blocking(self._ours, False)
        self._stopped = False
        self.stopping: Callable[[], None] | None = None

    def __enter__(self) -> "Messages":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_theirs()
        os.close(self._ours)

    def close_theirs(self) -> None:
        if self.theirs >= 0:
            os.close(self.theirs)
            self.theirs = -1

    def stop(self) -> None:
        """Asks the command to end. It may say more before it does."""
        if self.stopping is not None and not self._stopped:
            self._stopped = True
            self.stopping()

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        """As many lines as were said since; a line that is torn or too long is the reader's to refuse."""
        pending = b""
        while data := await self._read():
            *lines, pending = (pending + data).split(b"\n")
            if len(pending) > LONGEST_MESSAGE:
                lines, pending = [*lines, pending], b""
            yield [line for line in lines if line]
        if pending:
            yield [pending + TORN]

    async def pass_over(self) -> None:
        """What comes now counts no more, but must be read: who cannot write cannot end."""
        while await self._read():
            pass

    async def _read(self) -> bytes:
        while True:
            await readable(self._ours)
            with contextlib.suppress(BlockingIOError):
                return os.read(self._ours, 1 << 20)


async def _gone(child: ChildProcess) -> None:
    await child.end(grace=2 * GRACE.total_seconds() + 5)


async def _hear(child: ChildProcess, hearing: "_Hearing") -> None:
    """What the command says, in lines of bounded length, until all that could say something are gone."""
    pending = b""
    while data := await child.read(64 << 10):
        # A command that never pauses always has something to read: without this nothing else in this process would run.
        await asyncio.sleep(0)
        *lines, pending = (pending + data).split(b"\n")
        if len(pending) > LONGEST_LINE:
            lines, pending = [*lines, pending[:LONGEST_LINE]], b""
        hearing.hear([line for line in lines if line.strip()])
    hearing.hear([line for line in (pending,) if line.strip()])
    hearing.say_left_out()


class _Hearing:
    """So many lines of each second are logged, the others are counted. The last ones are kept whether logged or not."""

    def __init__(self, log: Callable[[str], None], last: deque[str], hidden: Sequence[bytes]) -> None:
        self._log, self._last, self._hidden = log, last, hidden
        self._second, self._said, self._left_out = 0, 0, 0

    def hear(self, lines: Sequence[bytes]) -> None:
        second = int(time.monotonic())
        if second != self._second:
            self.say_left_out()
            self._second, self._said = second, 0
        room = LINES_A_SECOND - self._said
        for line in lines[:room]:
            self._last.append(text := self._text(line))
            self._log(text)
        rest = lines[room:]
        self._last.extend(map(self._text, rest[-LAST_LINES:]))
        self._said += min(room, len(lines))
        self._left_out += len(rest)

    def say_left_out(self) -> None:
        if self._left_out:
            self._log(f"{self._left_out:,} lines were left out: at most {LINES_A_SECOND:,} a second are kept.")
        self._left_out = 0

    def _text(self, line: bytes) -> str:
        return without(line, self._hidden)[:LONGEST_LINE].decode("utf-8", "replace").replace("\0", "\ufffd").rstrip()


async def _report(fd: int) -> dict[str, object]:
    said = b""
    while not said.endswith(b"\n"):
        await readable(fd)
        data = os.read(fd, 4096)
        if not data:
            break
        said += data
    return json.loads(said) if said.endswith(b"\n") else {"problem": "EIO", "message": "The launcher was killed."}


def _ended(report: Mapping[str, object], last: Sequence[str]) -> CommandEnd:
    code, stopped, problem, message = (report.get(name) for name in ("exit", "stopped", "problem", "message"))
    return CommandEnd(
        code if isinstance(code, int) else None,
        stopped if isinstance(stopped, str) else None,
        problem if isinstance(problem, str) else None,
        message if isinstance(message, str) else None,
        last,
    )
