"""Executions inside the server: one at a time, from a checked request to the property in a new database.

What is guaranteed:

- Queries go on all the time. They see the graph without the result until the switch, and with it afterwards.
- Whatever is killed, and whenever, leaves the old database or the new one, whole. What is left besides is a scratch
  folder and a copy that `current` does not name; both are removed by the next execution and the next start.
- When a cancelled execution has ended, its child is gone. One that is switching already is not cancelled any more: it
  completes.
- An execution id stands for one execution: sent again, it is answered with what became of it, and one that was
  cancelled before it arrived never starts. This holds for the last `REMEMBERED` ids, as long as the process lives.
"""

import asyncio
import errno
import shutil
import signal
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Protocol

import structlog

from paddock.graphs.algorithms.reporting import disk_full
from paddock.graphs.algorithms.shape import shape_of, with_result
from paddock.graphs.algorithms.table import ALGORITHMS
from paddock.graphs.algorithms.validating import Task, algorithm_named, task_of
from paddock.graphs.databases import Current, Databases, Definitions
from paddock.graphs.engine import EngineFailed, EngineSettings
from paddock.graphs.problems import Problem
from paddock.graphs.spawning import ChildDied, ChildFailed, ChildLied, Family

MODULE = "paddock.graphs.algorithms.child"
REMEMBERED = 100
# At how many percent each step begins; the last ends with all of them.
BEGINNINGS = {"reading": 0.0, "computing": 20.0, "writing": 50.0, "switching": 98.0}
MOST_WORDS = 2000

Status = Literal["running", "completed", "failed", "cancelled"]
log = structlog.get_logger("paddock.graphs")


class Host(Protocol):
    """The instance, as far as an execution needs it."""

    databases: Databases

    def require_ready(self) -> Current: ...

    async def change_database(self, change: Callable[[Path], Awaitable[None]], definitions: Definitions) -> Current:
        """Puts a copy that `change` has changed in the place of the database. What fails leaves the old one."""


@dataclass
class Execution:
    id: str
    algorithm: str
    owner: str | None
    started_at: datetime
    status: Status = "running"
    phase: str = "reading"
    percent: float = 0.0
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    running: "asyncio.Task[None] | None" = field(default=None, repr=False)

    def as_json(self) -> dict[str, Any]:
        return {
            "execution_id": self.id,
            "algorithm": self.algorithm,
            "owner": self.owner,
            "started_at": self.started_at.isoformat(),
            "status": self.status,
            "phase": self.phase,
            "percent": round(self.percent, 1),
            "result": self.result,
            "error": self.error,
        }

    def moved(self, phase: str, done: float = 0.0) -> None:
        phases = list(BEGINNINGS)
        following = [*BEGINNINGS.values(), 100.0][phases.index(phase) + 1]
        self.phase = phase
        self.percent = BEGINNINGS[phase] + (following - BEGINNINGS[phase]) * min(max(done, 0.0), 1.0)


class Executions:
    def __init__(self, host: Host, family: Family, settings: EngineSettings, folder: Path) -> None:
        self._host = host
        self._family = family
        self._settings = settings
        self._scratch = folder / "algorithm"
        self._known: OrderedDict[str, Execution] = OrderedDict()
        self._last_ended_at: float | None = None
        # What an execution left when its server was killed.
        shutil.rmtree(self._scratch, ignore_errors=True)

    @property
    def running(self) -> Execution | None:
        return next((one for one in self._known.values() if one.status == "running"), None)

    @property
    def last_activity_at(self) -> float | None:
        return self._last_ended_at if self.running is None else time.time()

    def list(self) -> list[Execution]:
        """Newest first."""
        return list(reversed(self._known.values()))

    def find(self, id: str) -> Execution:
        found = self._known.get(id)
        if found is None:
            raise Problem(
                404,
                "execution_unknown",
                "This instance knows no such execution: it was never started here, is long over, or the instance was"
                " restarted since.",
            )
        return found

    def start(self, name: str, id: str, owner: str | None, body: dict[str, Any]) -> Execution:
        """Raises Problem: not valid, or another one runs."""
        if id in self._known:
            return self._known[id]
        algorithm = algorithm_named(name)
        current = self._host.require_ready()
        task = task_of(algorithm, body, shape_of(current.definitions))
        self._refuse_second()
        execution = Execution(id, name, owner, datetime.now(UTC))
        self._remember(execution)
        execution.running = asyncio.create_task(self._live(execution, task, current))
        return execution

    async def cancel(self, id: str) -> Execution:
        """Returns when its child is gone. A start with this id that comes later is answered as cancelled."""
        execution = self._known.get(id)
        if execution is None:
            execution = Execution(id, "", None, datetime.now(UTC), status="cancelled")
            self._remember(execution)
        elif execution.running is not None:
            if execution.phase != "switching":
                execution.running.cancel()
            await asyncio.wait([execution.running])
            if execution.status == "running":  # it was cancelled before its first line ran
                execution.status = "cancelled"
        return execution

    async def close(self) -> None:
        if self.running is not None:
            await self.cancel(self.running.id)

    def _refuse_second(self) -> None:
        holder = self.running
        if holder is None:
            return
        since = holder.started_at.isoformat(timespec="seconds")
        who = f" of {holder.owner}" if holder.owner else ""
        raise Problem(
            409,
            "RESOURCE_LOCKED",
            f"{ALGORITHMS[holder.algorithm].title}{who} runs here since {since}; one algorithm runs at a time.",
            hint="Wait until it ends, or cancel it.",
            details={
                "holder": holder.owner,
                "algorithm": holder.algorithm,
                "execution_id": holder.id,
                "since": holder.started_at.isoformat(),
            },
        )

    def _remember(self, execution: Execution) -> None:
        self._known[execution.id] = execution
        while len(self._known) > REMEMBERED:
            oldest = next(one for one in self._known.values() if one.status != "running")
            del self._known[oldest.id]

    async def _live(self, execution: Execution, task: Task, current: Current) -> None:
        began = time.monotonic()
        steps = _Steps(execution, task, current, self._host, self._family, self._settings, self._scratch)
        try:
            result = await steps.run()
        except asyncio.CancelledError:
            execution.status = "cancelled"
        except Exception as problem:
            execution.error = error_of(problem, execution, task)
            execution.status = "failed"
        else:
            execution.result = {**result, "seconds": round(time.monotonic() - began, 3)}
            execution.percent = 100.0
            execution.status = "completed"
        finally:
            self._last_ended_at = time.time()
            log.info("algorithm_ended", algorithm=execution.algorithm, execution=execution.id, status=execution.status)
            shutil.rmtree(self._scratch, ignore_errors=True)


class _Steps:
    """One execution on its way: child after child, then the switch."""

    def __init__(
        self,
        execution: Execution,
        task: Task,
        current: Current,
        host: Host,
        family: Family,
        settings: EngineSettings,
        scratch: Path,
    ) -> None:
        self._execution = execution
        self._task = task
        self._current = current
        self._host = host
        self._family = family
        self._settings = settings
        self._scratch = scratch
        self._deadline = asyncio.get_running_loop().time() + task.timeout_ms / 1000
        self._result: dict[str, Any] = {}

    async def run(self) -> dict[str, Any]:
        task = self._task
        await asyncio.to_thread(_make_empty, self._scratch)
        await self._step("reading")
        self._result |= await self._step("computing")
        self._execution.moved("writing")
        definitions = with_result(self._current.definitions, list(task.keys), task.property, task.type, task.algorithm)
        await self._host.change_database(self._write, definitions)
        return {
            "algorithm": task.algorithm,
            "property": task.property,
            "type": task.type,
            "labels": list(task.keys),
            "edge_types": [edge for edge, _source, _target in task.edges],
            **self._result,
        }

    async def _write(self, copy: Path) -> None:
        self._result |= await self._step("writing", copy=str(copy))
        # No await lies between the end of the step and this: who cancels from here on is too late.
        self._execution.moved("switching")

    async def _step(self, step: str, **more: str) -> dict[str, Any]:
        self._execution.moved(step)
        settings = self._settings
        request = {
            "step": step,
            "task": self._task.as_json(),
            "scratch": str(self._scratch),
            "database": str(self._host.databases.path(self._current.number)),
            "wrapper_type": settings.wrapper_type,
            "threads": settings.threads,
            "landlock": settings.landlock,
            # The engine child has its own share and goes on meanwhile.
            "pool_bytes": settings.memory_bytes // 4,
            "memory_bytes": settings.memory_bytes // 2,
            "disk_bytes": settings.disk_bytes,
            **more,
        }
        async with asyncio.timeout_at(self._deadline):
            return await self._family.run(MODULE, request, self._hear(step))

    def _hear(self, step: str) -> Callable[[dict[str, Any]], None]:
        def hear(facts: dict[str, Any]) -> None:
            done = facts.get("done")
            if isinstance(done, int | float):
                self._execution.moved(step, done)

        return hear


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)


def error_of(problem: Exception, execution: Execution, task: Task) -> dict[str, Any]:
    """What went wrong, as a sentence. A bug is named by its type alone: the log has the rest."""
    title = ALGORITHMS[task.algorithm].title
    if isinstance(problem, TimeoutError):
        seconds = task.timeout_ms / 1000
        return _error("algorithm_timed_out", f"{title} was not done within {seconds:,.0f} s.", "Allow it more time.")
    if isinstance(problem, ChildFailed):
        facts = problem.facts
        hint = facts.get("hint")
        return _error(str(facts.get("code"))[:100], str(problem)[:MOST_WORDS], hint if isinstance(hint, str) else None)
    if isinstance(problem, ChildDied):
        how = f"by signal {-problem.status}" if problem.status < 0 else f"with status {problem.status}"
        # Whoever is killed has mostly taken too much memory.
        hint = "It may need more memory_gb." if problem.status == -signal.SIGKILL else None
        return _error("algorithm_crashed", f"The process of {title} ended {how} while {execution.phase}.", hint)
    log.error("algorithm_failed", exc_info=problem, execution=execution.id)
    if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full().facts
    if isinstance(problem, EngineFailed):
        return _error("algorithm_crashed", f"The database with the result of {title} does not open: {problem}")
    if isinstance(problem, ChildLied | OSError):
        return _error("algorithm_crashed", f"{title} failed while {execution.phase}: {problem}")
    return _error("algorithm_crashed", f"{title} failed while {execution.phase}: {type(problem).__name__}.")


def _error(code: str, message: str, hint: str | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "hint": hint}
