"""One instance: empty, loading, ready, or failed for good; and what `/status` tells of it."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import structlog

from paddock.graphs.algorithms.executions import Executions
from paddock.graphs.control_group import memory_used
from paddock.graphs.databases import Current, Databases, Definitions
from paddock.graphs.engine import Engine, EngineFailed, EngineSettings
from paddock.graphs.engines import Engines
from paddock.graphs.loading import Load, Progress
from paddock.graphs.plan import Plan
from paddock.graphs.problems import LoadFailed, not_running
from paddock.graphs.queries import Queries
from paddock.graphs.spawning import Family
from paddock.graphs.starting import PROTOCOL, Start

log = structlog.get_logger("paddock.graphs")


class Instance:
    def __init__(self, start: Start) -> None:
        self.start = start
        self.databases = Databases(Path(start.folder))
        self.family = Family()
        self.settings = EngineSettings(
            start.wrapper_type,
            start.memory_bytes,
            start.disk_bytes,
            max(1, start.cpu),
            start.landlock != "off",
            start.in_pod,
        )
        self.engines = Engines(self.family, self.settings, self._engine_gave_up)
        self.queries = Queries(self.engines)
        self.executions = Executions(self, self.family, self.settings, Path(start.folder))
        self.current: Current | None = None
        self.error: LoadFailed | None = None
        self.from_database = False
        self._ready = False
        self._opening = False
        self._changing = asyncio.Lock()
        self._load: Load | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed_at = time.time()

    @property
    def phase(self) -> str:
        if self.error is not None:
            return "failed"
        if self._ready:
            return "ready"
        if self._load is not None:
            return self._load.progress.phase
        return "checking" if self._opening else "empty"

    def require_ready(self) -> Current:
        if not self._ready or self.current is None or self.error is not None:
            raise not_running(self.phase)
        return self.current

    def reopen(self) -> None:
        """Where a database is there already, it is opened and nothing is loaded."""
        current = self.databases.current()
        self.databases.drop_files()
        self.databases.drop_others(*(() if current is None else (current.number,)))
        if current is not None:
            self._opening = True
            self.from_database = True
            self._task = asyncio.create_task(self._open_again(current))

    def load(self, plan: Plan) -> bool:
        """Whether it loads, now or since before: then links are renewed and nothing restarts."""
        if self.error is not None or self._ready or self._opening:
            return False
        if self._load is not None:
            self._load.fetching.renew(plan)
            return True
        self._load = Load(plan, self.databases, self.family, self.settings, Progress(plan))
        self._task = asyncio.create_task(self._run_load(self._load))
        return True

    async def change_database(self, change: Callable[[Path], Awaitable[None]], definitions: Definitions) -> Current:
        """A copy of the database, changed by `change` (a child that checkpoints and closes it), takes its place.

        Queries go on all the time: those that run end on the old file, later ones see the new. Killed at any point, the
        next start opens the old file or the new, whole. One change at a time; whatever fails leaves the old one."""
        async with self._changing:
            before = self.require_ready()
            after = msgspec.structs.replace(before, number=before.number + 1, definitions=definitions)
            try:
                database = await asyncio.to_thread(self.databases.copy, before.number, after.number)
                await change(database)
                # Opened before it is published: from `current` on there is no way back.
                engine = await self.engines.start(database, after.properties())
            except BaseException:
                await asyncio.shield(asyncio.to_thread(self.databases.drop_others, before.number))
                raise
            placing = asyncio.create_task(self._put_in_place(after, engine, database))
            try:
                await asyncio.shield(placing)
            except asyncio.CancelledError:
                await placing  # whoever changes it next must find it done
                raise
        return after

    async def _put_in_place(self, after: Current, engine: Engine, database: Path) -> None:
        try:
            await asyncio.to_thread(self.databases.publish, after)
        except BaseException:
            await engine.end()
            raise
        self.engines.use(engine, database, after.properties())
        self.current = after
        # The old child has its file open and goes on reading it, name or not.
        await asyncio.to_thread(self.databases.drop_others, after.number)

    async def settled(self) -> None:
        """Waits until what was begun, a load or the opening of a database, has ended well or badly."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def close(self, grace: float) -> None:
        await self.executions.close()
        await self.queries.close(grace)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.engines.close()

    async def _run_load(self, load: Load) -> None:
        try:
            current = await load.run()
            load.progress.phase = "checking"
            await self._open(current)
        except LoadFailed as failed:
            await self._give_up(failed)
        except EngineFailed as failed:
            self._fail(_does_not_open(str(failed)))
        except Exception as problem:
            log.exception("load_failed")
            await self._give_up(LoadFailed("loader_died", f"The load failed: {type(problem).__name__}."))

    async def _give_up(self, failed: LoadFailed) -> None:
        """What a failed load left is of no use to anybody, and takes room."""
        self._fail(failed)
        await asyncio.to_thread(self.databases.drop_files)
        await asyncio.to_thread(self.databases.drop_others)

    async def _open_again(self, current: Current) -> None:
        try:
            await self._open(current)
        except EngineFailed as failed:
            self._fail(_does_not_open(str(failed)))

    async def _open(self, current: Current) -> None:
        database = self.databases.path(current.number)
        self.engines.use(await self.engines.start(database, current.properties()), database, current.properties())
        self.current = current
        self._ready = True
        self._changed_at = time.time()
        log.info("instance_ready", from_database=self.from_database)

    def _fail(self, failed: LoadFailed) -> None:
        self.error = failed
        self._changed_at = time.time()
        log.warning("instance_failed", cause=failed.cause, message=failed.message)

    def _engine_gave_up(self, problem: str) -> None:
        self._fail(_does_not_open(problem))
        self.queries.stop_all()

    def database_bytes(self) -> int:
        return self.databases.size(self.current.number) if self.current else 0

    def _memory_bytes(self) -> int:
        """In a pod what its container has, files in memory too: that is what its limit counts."""
        used = memory_used(self.start.memory_bytes) if self.start.in_pod else None
        return self.family.memory_bytes() if used is None else used

    def _last_activity_at(self) -> float:
        return max(self.queries.last_activity_at or 0.0, self.executions.last_activity_at or 0.0)

    def status(self) -> dict[str, Any]:
        start, progress = self.start, self._load.progress if self._load is not None else None
        current = self.current
        return {
            "protocol": PROTOCOL,
            "id": start.id,
            "generation": start.generation,
            "name": start.name,
            "wrapper_type": start.wrapper_type,
            "phase": self.phase,
            "percent": 100.0 if self._ready else progress.percent if progress else 0.0,
            "eta_seconds": None if self._ready or progress is None else progress.eta_seconds,
            "moved_at": iso(max(self._changed_at, progress.moved_at if progress else 0)),
            "needs_links": self._load is not None and self._load.fetching.needs_links,
            "tables": progress.tables if progress else [],
            "counts": current.counts if current else None,
            "dangling_edges": current.dangling_edges if current else {},
            "error": self.error.facts() if self.error else None,
            "in_flight": self.queries.in_flight,
            "queued": self.queries.queued,
            "last_activity_at": iso(active) if (active := self._last_activity_at()) else None,
            "memory_bytes": self._memory_bytes(),
            "memory_limit_bytes": self.settings.memory_bytes,
            "outside_pool_bytes": self.engines.outside_pool_bytes(),
            "database_bytes": self.database_bytes(),
            "engine_restarts": self.engines.restarts.total(),
            "engine_restart_reason": self.engines.last_reason,
            "from_database": self.from_database,
        }


def _does_not_open(problem: str) -> LoadFailed:
    return LoadFailed(
        "database_does_not_open", f"The database does not open: {problem}", "Reopen the instance from its snapshot."
    )


def iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
