"""Starts a child, asks it one thing, and hears it out without blocking the loop.

A child serves one job and is never used again: whatever a query did to it ends with it. One is kept started ahead of
time, because importing an engine takes longer than most queries. Nothing of ours outlives us: a child is told to die
with its parent, and sees its standard input end.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import structlog

from paddock.child_processes.frames import HEADER
from paddock.child_processes.spawning import ChildProcess, large_pipe, readable
from paddock.engines.children.wire import ERROR, MAX_FRAME
from paddock.engines.engine import QueryRefused
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError, UserMistake
from paddock.jobs.model import JsonObject
from paddock.storage.scratch import Scratch

# A child that writes as fast as we read would keep the loop from everybody else.
BREATH_BYTES = 2 << 20
STDERR_BYTES = 4_000

log = structlog.get_logger("paddock.engines")


class Child:
    def __init__(self, run: Sequence[str]) -> None:
        """`run`: what Python is told to run, `-m` and a module."""
        self._results, theirs = large_pipe()
        try:
            self._process = ChildProcess(
                # -P: the folder we are in, which may be full of somebody's files, is no place to import from.
                [sys.executable, "-P", *run, str(os.getpid()), str(theirs)],
                environment={},
                stdin=subprocess.PIPE,
                pass_fds=(theirs,),
                own_group=False,  # whoever kills the runner's group means this one too
            )
        except OSError as problem:
            os.close(self._results)
            raise TransientResourceError(
                f"No process could be started for the query: {problem.strerror}.", code="child_not_started"
            ) from None
        finally:
            os.close(theirs)
        self.pid = self._process.pid
        self.kill = self._process.kill

    @property
    def alive(self) -> bool:
        return self._process.alive

    async def tell(self, facts: JsonObject) -> None:
        """One that is dead hears nothing; `hear` finds out how it died."""
        await self._process.write(json.dumps(facts).encode() + b"\n")

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
                await readable(self._results)
                continue
            if count == 0:
                raise await self._death()
            filled += count
            if filled < length:
                await asyncio.sleep(0)
        return buffer

    async def _death(self) -> PermanentRunnerError:
        status = await self._process.wait()
        said = self._process.last_words[-STDERR_BYTES:]
        log.warning("engine_child_died", pid=self.pid, status=status, stderr=said)
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        return PermanentRunnerError(
            f"The process that ran the query ended {how} before the result was complete.",
            code="query_crashed",
            # Who fails by itself says so; who is killed has mostly taken too much.
            hint="It may need more memory than the engine's memory_bytes allows." if status < 0 else None,
        )

    async def end(self) -> None:
        """Gone when this returns, however it was and however often the caller is cancelled."""
        try:
            await self._process.end()
        finally:
            self.close()

    def close(self) -> None:
        """Of one that is not alive."""
        self._process.reap()
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
            child.close()
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
    failed = UserMistake if facts["mistake"] else PermanentRunnerError
    return failed(facts["message"], code=facts["code"], hint=facts["hint"])
