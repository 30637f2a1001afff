"""Starts a child, asks it one thing, and hears it out without blocking the loop.

A child serves one job and is never used again: whatever a query did to it ends with it. One is kept started ahead of
time, because importing an engine takes longer than most queries. Nothing of ours outlives us: a child is told to die
with its parent, and sees its standard input end.
"""

import asyncio
import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import structlog

from paddock.engines.children.wire import ERROR, HEADER, MAX_FRAME
from paddock.engines.engine import QueryRefused
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.jobs.model import JsonObject
from paddock.storage.scratch import Scratch

PIPE_BYTES = 1 << 20
# A child that writes as fast as we read would keep the loop from everybody else.
BREATH_BYTES = 2 << 20
STDERR_BYTES = 4_000

log = structlog.get_logger("paddock.engines")


class Child:
    def __init__(self, run: Sequence[str]) -> None:
        """`run`: what Python is told to run, `-m` and a module."""
        self._results, theirs = os.pipe()
        self.errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  closed by `bury`
        try:
            # Not in a thread: the signal that comes when a parent dies follows the thread that forked.
            self._process = subprocess.Popen(
                # -P: the folder we are in, which may be full of somebody's files, is no place to import from.
                [sys.executable, "-P", *run, str(os.getpid()), str(theirs)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self.errors,
                env={},
                pass_fds=(theirs,),
                bufsize=0,
            )
        except OSError as problem:
            os.close(self._results)
            self.errors.close()
            raise TransientResourceError(
                f"No process could be started for the query: {problem.strerror}.", code="child_not_started"
            ) from None
        finally:
            os.close(theirs)
        self.pid = self._process.pid
        stdin = self._process.stdin
        assert stdin is not None
        self._stdin = stdin
        for fd in (self._results, self._stdin.fileno()):
            os.set_blocking(fd, False)
        if sys.platform == "linux":
            fcntl.fcntl(self._results, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    async def tell(self, facts: JsonObject) -> None:
        line = memoryview(json.dumps(facts).encode() + b"\n")
        fd = self._stdin.fileno()
        while line:
            try:
                line = line[os.write(fd, line) :]
            except BlockingIOError:
                await _until_ready(fd, reading=False)
            except BrokenPipeError:
                return  # it is dead; `hear` finds out how

    async def hear(self) -> tuple[bytes, pa.Buffer]:
        """The next frame. What the child calls an error is raised, and so is its death."""
        kind, length = HEADER.unpack(await self._read(HEADER.size))
        if length > MAX_FRAME:
            raise PermanentRunnerError("The query's process sent a frame without end.", code="query_crashed")
        body = await self._read(length)
        if kind == ERROR:
            raise _failure(json.loads(bytes(body)))
        return kind, body

    async def _read(self, length: int) -> pa.Buffer:
        buffer = pa.allocate_buffer(length)
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < length:
            try:
                count = os.readv(self._results, [view[filled : filled + BREATH_BYTES]])
            except BlockingIOError:
                await _until_ready(self._results, reading=True)
                continue
            if count == 0:
                raise await self._death()
            filled += count
            if filled < length:
                await asyncio.sleep(0)
        return buffer

    async def _death(self) -> PermanentRunnerError:
        status = await asyncio.to_thread(self._process.wait)
        log.warning("engine child died", pid=self.pid, status=status, stderr=self._last_words())
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return PermanentRunnerError(
            f"The process that ran the query ended {how} before the result was complete.",
            code="query_crashed",
            # Who fails by itself says so; who is killed has mostly taken too much.
            hint="It may need more memory than the engine's memory_bytes allows." if status < 0 else None,
        )

    def _last_words(self) -> str:
        size = self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, size - STDERR_BYTES))
        return self.errors.read(STDERR_BYTES).decode("utf-8", "replace")

    def kill(self) -> None:
        if self.alive:
            self._process.kill()

    async def end(self) -> None:
        """Gone when this returns, however it was and whoever waits no longer."""
        self.kill()
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.bury))

    def bury(self) -> None:
        self._process.wait()
        self._stdin.close()
        self.errors.close()
        if self._results >= 0:
            os.close(self._results)
            self._results = -1


class Children:
    """The children of one engine: one waits, started ahead; each that runs has a spill folder of its own."""

    def __init__(self, run: Sequence[str], spill: Path | None) -> None:
        self._run = run
        self._base = spill
        self._scratch: Scratch | None = None
        self._next: Child | None = None
        self._running: dict[str, Child] = {}
        self._closed = False
        self._mutex = threading.Lock()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[tuple[Child, Path]]:
        """A child nobody used, and its empty folder. Both are gone afterwards."""
        spill = await asyncio.to_thread(self._new_spill)
        child = self._take()
        self._running[spill.name] = child
        try:
            yield child, spill
        finally:
            del self._running[spill.name]
            try:
                await child.end()
            finally:
                await asyncio.shield(asyncio.to_thread(shutil.rmtree, spill, ignore_errors=True))

    def kill(self, name: str) -> None:
        child = self._running.get(name)
        if child is not None:
            child.kill()

    async def close(self) -> None:
        self._closed = True
        waiting, self._next = self._next, None
        for child in [*self._running.values(), *([waiting] if waiting is not None else [])]:
            child.kill()
        if waiting is not None:
            await waiting.end()
        if self._scratch is not None:
            self._scratch.close()
            self._scratch = None

    def _take(self) -> Child:
        child, self._next = self._next, None
        if child is not None and not child.alive:
            child.bury()
            child = None
        child = child or Child(self._run)
        if not self._closed:
            self._next = Child(self._run)
        return child

    def _new_spill(self) -> Path:
        with self._mutex:
            if self._scratch is None:
                self._scratch = Scratch(_private(self._base), 0)
        return Path(tempfile.mkdtemp(dir=self._scratch.folder))


def _private(folder: Path | None) -> Path:
    """The default is in a place that everybody may write to: it must be ours."""
    if folder is not None:
        return folder
    folder = Path(tempfile.gettempdir()) / f"paddock-spill-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if folder.is_symlink() or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermanentRunnerError(
            f"The folder for spilled data, {folder}, belongs to somebody else or is open to others.",
            code="spill_not_private",
            hint="Remove it, or set spill_folder in the engine's configuration.",
        )
    return folder


async def _until_ready(fd: int, *, reading: bool) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def now() -> None:
        if not ready.done():
            ready.set_result(None)

    add, remove = _watching(loop, reading)
    add(fd, now)
    try:
        await ready
    finally:
        remove(fd)


def _watching(loop: asyncio.AbstractEventLoop, reading: bool) -> tuple[Callable[..., Any], Callable[[int], Any]]:
    if reading:
        return loop.add_reader, loop.remove_reader
    return loop.add_writer, loop.remove_writer


def _failure(facts: JsonObject) -> InfrastructureError:
    if facts["transient"]:
        return TransientResourceError(facts["message"], code=facts["code"], hint=facts["hint"])
    if facts["refused"]:
        return QueryRefused(
            facts["message"],
            code=facts["code"] or None,
            hint=facts["hint"],
            line=facts["line"],
            column=facts["column"],
        )
    return PermanentRunnerError(facts["message"], code=facts["code"], hint=facts["hint"])
