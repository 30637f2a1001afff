"""One engine child as the server sees it: a process, a pipe to hear whether it is ready, and a pipe for each slot."""

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import structlog

from paddock.child_processes.spawning import ChildProcess, large_pipe
from paddock.graphs.children.talking import READY
from paddock.graphs.control_group import memory_limit
from paddock.graphs.spawning import LAST_WORDS, ChildLied, Family, read_facts, read_frame

MODULE = "paddock.graphs.children.engine"
SLOTS = 8
START_SECONDS = 60.0

log = structlog.get_logger("paddock.graphs")


class EngineFailed(Exception):
    """The child did not become ready; a sentence."""


class EngineSettings(msgspec.Struct, frozen=True):
    wrapper_type: str
    told_memory_bytes: int
    disk_bytes: int
    threads: int
    landlock: bool
    # It has a control group of its own, which may get more memory.
    in_pod: bool = False

    @property
    def memory_bytes(self) -> int:
        return memory_limit(self.told_memory_bytes) if self.in_pod else self.told_memory_bytes


class Slot:
    """The place of one running query."""

    def __init__(self, index: int, pipe: int) -> None:
        self.index = index
        self.pipe = pipe
        self.number = 0


class Engine:
    def __init__(self, process: ChildProcess, control: int, slots: list[Slot], pool_bytes: int) -> None:
        self._process = process
        self.pool_bytes = pool_bytes
        self._control = control
        self._slots = slots
        self._free = list(reversed(slots))
        self._numbers = itertools.count(1)
        self._telling = asyncio.Lock()
        self._over = False
        # Why we killed it; None: we did not.
        self.killed: str | None = None
        self._running_at_end: int | None = None
        self.retired = False

    @classmethod
    async def start(
        cls, family: Family, settings: EngineSettings, database: Path, properties: dict[str, dict[str, str]]
    ) -> "Engine":
        """Ready to run queries. Raises EngineFailed."""
        pipes = [large_pipe() for _ in range(SLOTS + 1)]
        theirs = [given for _, given in pipes]
        try:
            process = family.start(MODULE, [], theirs)
        except OSError as problem:
            for ours, _ in pipes:
                os.close(ours)
            raise EngineFailed(f"No process could be started: {problem.strerror}.") from problem
        finally:
            for given in theirs:
                os.close(given)
        control, *rest = [ours for ours, _ in pipes]
        memory_bytes = settings.memory_bytes
        engine = cls(process, control, [Slot(index, pipe) for index, pipe in enumerate(rest)], memory_bytes // 2)
        request = {
            "wrapper_type": settings.wrapper_type,
            "database": str(database),
            # The rest is for what the engine does not count: Python, Arrow, sorting, strings in the making.
            "pool_bytes": engine.pool_bytes,
            "memory_bytes": memory_bytes,
            "threads": settings.threads,
            "landlock": settings.landlock,
            "properties": properties,
            "control": theirs[0],
            "slots": theirs[1:],
        }
        try:
            async with asyncio.timeout(START_SECONDS):
                await process.write(json.dumps(request).encode() + b"\n")
                await engine._ready()
        except BaseException as problem:
            await engine.end()
            if isinstance(problem, TimeoutError):
                raise EngineFailed(f"The engine was not ready within {START_SECONDS:.0f} s.") from None
            raise
        return engine

    async def _ready(self) -> None:
        try:
            frame = await read_frame(self._control)
        except ChildLied as lie:
            raise EngineFailed(str(lie)) from None
        if frame is None:
            status = await self._process.wait()
            log.warning("engine_did_not_start", status=status, stderr=self._process.last_words[-LAST_WORDS:])
            raise EngineFailed(f"The engine's process ended with {status} before it was ready.")
        if frame[0] != READY:
            raise EngineFailed(str(read_facts(frame[1]).get("message", ""))[:500])

    @property
    def running_at_end(self) -> int:
        """How many queries it ran when the first of them learned of its end, before any gave its slot back."""
        if self._running_at_end is None:
            self._running_at_end = self.running
        return self._running_at_end

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def status(self) -> int | None:
        return self._process.returncode

    @property
    def usable(self) -> bool:
        return self.killed is None and not self.retired and self._process.alive

    @property
    def running(self) -> int:
        return len(self._slots) - len(self._free)

    def take(self) -> Slot:
        slot = self._free.pop()
        slot.number = next(self._numbers)
        return slot

    def give_back(self, slot: Slot) -> None:
        self._free.append(slot)
        if self._over:
            os.close(slot.pipe)

    async def ask(self, slot: Slot, request: dict[str, Any]) -> None:
        await self._tell({"slot": slot.index, "number": slot.number, **request})

    async def cancel(self, slot: Slot, number: int) -> None:
        await self._tell({"slot": slot.index, "cancel": number})

    async def _tell(self, message: dict[str, Any]) -> None:
        # One after the other: a long one is written in several steps, and two must not mix.
        async with self._telling:
            try:
                await self._process.write(json.dumps(message).encode() + b"\n")
            except (OSError, ValueError):
                # Its pipe is closed with its end: there is nobody to be told, and whoever asked learns of the end by theirs.
                if self._process.alive:
                    raise

    def kill(self, reason: str) -> None:
        if self.killed is None and self._process.alive:
            self.killed = reason
            self._process.kill()

    async def ended(self) -> None:
        await self._process.wait()

    def when_ended(self, call: Callable[[], None]) -> None:
        self._process.when_ended(call)

    async def end(self) -> None:
        """Gone when this returns. The pipe of a slot in use is closed when that is given back: somebody reads it."""
        await self._process.end()
        if not self._over:
            self._over = True
            for pipe in (self._control, *(slot.pipe for slot in self._free)):
                os.close(pipe)
