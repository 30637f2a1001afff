"""The engine child that takes queries, and those before it that still end theirs.

When one dies or has to be killed, the next is started at once and new queries wait for it. Where the database was
replaced, the new child is ready before the first query goes to it, and the old one ends when its last query has.
"""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import structlog

from paddock.graphs.engine import Engine, EngineFailed, EngineSettings
from paddock.graphs.spawning import Family, resident_bytes

# How long to wait before each attempt to start a child again; after the last one the database is taken for broken. What keeps a
# child from starting may be the machine, which is full for a moment.
PAUSES = (0.0, 2.0, 10.0)

Properties = dict[str, dict[str, str]]
log = structlog.get_logger("paddock.graphs")


class Engines:
    def __init__(self, family: Family, settings: EngineSettings, gave_up: Callable[[str], None]) -> None:
        self._family = family
        self._settings = settings
        self._gave_up = gave_up
        self._database: Path | None = None
        self._properties: Properties = {}
        self._current: Engine | None = None
        self._ready = asyncio.Event()
        self._all: set[Engine] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._restarted: list[Callable[[str], None]] = []
        self.restarts: Counter[str] = Counter()
        self.last_reason = ""

    async def start(self, database: Path, properties: Properties) -> Engine:
        """One that could take queries; `use` gives them to it. Raises EngineFailed."""
        return await Engine.start(self._family, self._settings, database, properties)

    def use(self, engine: Engine, database: Path, properties: Properties) -> None:
        """From here on queries go to this database."""
        before, self._current = self._current, engine
        self._database, self._properties = database, properties
        self._adopt(engine)
        if before is not None:
            before.retired = True
            self.let_go(before)

    async def ready(self) -> Engine:
        """The one that takes queries, as soon as there is one."""
        while True:
            await self._ready.wait()
            if self._current is not None and self._current.usable:
                return self._current
            self._ready.clear()
            await self._ready.wait()

    def when_restarted(self, tell: Callable[[str], None]) -> None:
        self._restarted.append(tell)

    def outside_pool_bytes(self) -> int:
        """What the engine children take beside their buffer pools."""
        return sum(max(0, resident_bytes(engine.pid) - engine.pool_bytes) for engine in self._all)

    def let_go(self, engine: Engine) -> None:
        """Called when a query of it has ended: one that takes no more of them is ended with its last."""
        if engine.retired and engine.running == 0:
            self._later(engine.end())

    async def close(self) -> None:
        self._closed = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*(engine.end() for engine in list(self._all)), return_exceptions=True)

    def _adopt(self, engine: Engine) -> None:
        self._all.add(engine)
        engine.when_ended(lambda: self._ended(engine))
        self._ready.set()

    def _ended(self, engine: Engine) -> None:
        self._all.discard(engine)
        self._later(engine.end())
        if engine is not self._current or self._closed:
            return
        self._current = None
        self._ready.clear()
        reason = engine.killed or death_reason(engine)
        self.restarts[reason] += 1
        self.last_reason = reason
        for told in self._restarted:
            told(reason)
        # What it said on standard error may hold the text of a query.
        log.warning("engine_restarted", reason=reason, status=engine.status)
        self._later(self._restart())

    async def _restart(self) -> None:
        assert self._database is not None
        failed = ""
        for attempt, pause in enumerate(PAUSES):
            await asyncio.sleep(pause)
            if not self._misses_one():
                return
            try:
                engine = await Engine.start(self._family, self._settings, self._database, self._properties)
            except (EngineFailed, OSError) as problem:
                log.warning("engine_did_not_start", attempt=attempt, problem=str(problem))
                failed = str(problem)
                continue
            if not self._misses_one():
                await engine.end()
                return
            self._current = engine
            self._adopt(engine)
            return
        if self._misses_one():
            self._gave_up(failed)

    def _misses_one(self) -> bool:
        """False too where the database was replaced meanwhile, and its new child with it."""
        return self._current is None and not self._closed

    def _later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def death_reason(engine: Engine) -> str:
    """SIGKILL that is not ours is the kernel's, out of memory: it takes this child before everybody else."""
    return "out_of_memory" if engine.status == -signal.SIGKILL else "crashed"
