"""From a plan to a database: fetch, load, check, and write down what is there now. One load in the life of an instance."""

import asyncio
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import structlog

from paddock.child_processes.spawning import ChildProcess
from paddock.graphs.databases import Current, Databases, Definitions
from paddock.graphs.engine import EngineSettings
from paddock.graphs.fetching import Fetching
from paddock.graphs.plan import Plan
from paddock.graphs.problems import LoadFailed
from paddock.graphs.spawning import ChildDied, ChildFailed, ChildLied, Family, cpu_ticks

MODULE = "paddock.graphs.children.loader"
# Of the whole time; the rest is the loader's.
FETCHING_SHARE = 20.0
WATCH_SECONDS = 1.0
CAUSES = frozenset(
    {
        "file_missing", "file_changed", "ddl_refused", "key_duplicate", "key_null", "value_does_not_fit", "loader_died",
        "counts_differ", "database_does_not_open", "out_of_memory", "disk_full",
    }
)  # fmt: skip

log = structlog.get_logger("paddock.graphs")


class Progress:
    """What `/status` tells of a load."""

    def __init__(self, plan: Plan) -> None:
        self.phase = "fetching"
        self.began = time.monotonic()
        self.moved_at = time.time()
        self.tables: list[dict[str, Any]] = [
            {"section": table.section, "name": table.name, "rows": table.rows, "done": 0} for table in plan.tables()
        ]
        self._rows = sum(table.rows for table in plan.tables())
        self._bytes = sum(file.bytes for table in plan.tables() for file in table.files)
        self._fetched = 0
        self._mutex = threading.Lock()

    def fetched(self, count: int) -> None:
        """Called by the threads that fetch."""
        with self._mutex:
            self._fetched += count
        self.moved()

    def moved(self) -> None:
        self.moved_at = time.time()

    def hear(self, facts: dict[str, Any]) -> None:
        """Of the loader: a phase, or a table that is done."""
        if facts.get("phase") in ("schema", "nodes", "edges", "checking"):
            self.phase = facts["phase"]
        for table in self.tables:
            if table["name"] == facts.get("table"):
                table["done"] = table["rows"]
        self.moved()

    @property
    def percent(self) -> float:
        fetched = self._fetched / self._bytes if self._bytes else 1.0
        loaded = sum(table["done"] for table in self.tables) / self._rows if self._rows else 0.0
        share = FETCHING_SHARE * min(fetched, 1.0) + (99 - FETCHING_SHARE) * loaded
        return round(share, 1)

    @property
    def eta_seconds(self) -> float | None:
        percent = self.percent
        if percent < 1:
            return None
        return round((time.monotonic() - self.began) * (100 - percent) / percent, 1)


class Load:
    def __init__(
        self, plan: Plan, databases: Databases, family: Family, settings: EngineSettings, progress: Progress
    ) -> None:
        self._plan = plan
        self._databases = databases
        self._family = family
        self._settings = settings
        self.progress = progress
        self.fetching = Fetching(plan, databases.files, progress.fetched)

    async def run(self) -> Current:
        """Raises LoadFailed. Killed at any point it leaves files that the next start removes."""
        names = await self.fetching.all()
        database = await asyncio.to_thread(self._databases.new_place, 1)
        definitions = definitions_of(self._plan)
        request = {
            "wrapper_type": self._settings.wrapper_type,
            "database": str(database),
            "files": str(self._databases.files),
            "pool_bytes": self._settings.memory_bytes // 2,
            "memory_bytes": self._settings.memory_bytes,
            "disk_bytes": self._settings.disk_bytes,
            "threads": self._settings.threads,
            "landlock": self._settings.landlock,
            "nodes": [{**table, "files": names[table["label"]]} for table in definitions["nodes"]],
            "edges": [{**table, "files": names[table["type"]]} for table in definitions["edges"]],
        }
        counted = await self._load(request)
        current = Current(1, counted["counts"], counted["dangling_edges"], definitions)
        await asyncio.to_thread(self._databases.publish, current)
        await asyncio.to_thread(self._databases.drop_files)
        return current

    async def _load(self, request: dict[str, Any]) -> dict[str, Any]:
        watching: list[asyncio.Task[None]] = []

        def watch(child: ChildProcess) -> None:
            watching.append(asyncio.create_task(_watch(child, self.progress.moved)))

        try:
            return await self._family.run(MODULE, request, self.progress.hear, watch)
        except ChildFailed as failed:
            raise _load_failure(failed.facts) from None
        except ChildDied as died:
            raise _died(died) from None
        except (ChildLied, OSError) as problem:
            raise LoadFailed("loader_died", f"The loader failed: {problem}.") from problem
        finally:
            for task in watching:
                task.cancel()


async def _watch(child: ChildProcess, moved: Callable[[], None]) -> None:
    """One COPY may take long and says nothing: as long as it computes, something moves."""
    before = 0
    while True:
        ticks = cpu_ticks(child.pid)
        if ticks > before:
            moved()
        before = ticks
        await asyncio.sleep(WATCH_SECONDS)


def definitions_of(plan: Plan) -> Definitions:
    """The tables without their files."""
    told: Definitions = msgspec.to_builtins({"nodes": plan.nodes, "edges": plan.edges})
    for tables in told.values():
        for table in tables:
            del table["files"]
    return told


def _load_failure(facts: dict[str, Any]) -> LoadFailed:
    cause = facts.get("cause")
    return LoadFailed(
        cause if cause in CAUSES else "loader_died", str(facts.get("message", ""))[:2000], facts.get("hint")
    )


def _died(died: ChildDied) -> LoadFailed:
    if died.status == -signal.SIGKILL:
        return LoadFailed(
            "out_of_memory", "The load took more memory than there is and was killed.", "Ask for more memory."
        )
    how = f"by signal {-died.status}" if died.status < 0 else f"with status {died.status}"
    return LoadFailed("loader_died", f"The loader's process ended {how}.", "Try again; if it comes back, report it.")
