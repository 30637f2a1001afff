"""A runner that kills itself, or waits, at the points of an export that a test names.

The product knows nothing of it: in the runner's process its functions are replaced by ones that look, before and after,
whether the plan's first line names this point. A line is `what point times`: `kill uploaded 2` ends the runner after the
second upload of its process or the next one, `worker ...` the whole worker with it, `hold ...` waits until the file beside the plan that
says so is removed. A line is taken out before it is carried out: everything happens once.
"""

import asyncio
import os
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paddock.worker.resources import Factories

# A runner loads this file too: it need not wait for what only a worker needs.
if TYPE_CHECKING:
    from paddock.jobs.core import Core
    from paddock.worker.supervisor import Worker

PLAN = "CRASH_PLAN"
HELD = "held"
JOB_FILE = re.compile(r"[0-9a-f-]{36}-\d+\.")

# The name of a point, or what finds it in a call's arguments; None: this call is none.
Point = str | Callable[..., str | None] | None


class Plan:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._times: Counter[str] = Counter()
        self._mutex = threading.Lock()

    def reached(self, point: str) -> bool:
        """Whether to wait here. Does not return from being killed, and lets no other thread reach a point meanwhile."""
        with self._mutex:
            what = self._taken(point)
            if what == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if what == "worker":
                os.kill(os.getppid(), signal.SIGKILL)
                while True:  # it takes this process with it
                    time.sleep(1)
        return what == "hold"

    def _taken(self, point: str) -> str | None:
        self._times[point] += 1
        lines = self._path.read_text().splitlines()
        what, where, times = lines[0].split() if lines else ("", "", "0")
        if where != point or int(times) > self._times[point]:
            return None
        rest = self._path.with_suffix(".rest")
        rest.write_text("".join(f"{line}\n" for line in lines[1:]))
        rest.replace(self._path)
        return what

    async def at(self, point: str) -> None:
        if self.reached(point):
            held = self._path.with_name(HELD)
            held.touch()
            while held.exists():  # noqa: ASYNC110  another process removes it
                await asyncio.sleep(0.01)


def resources() -> Factories:
    from paddock.exports.resources import ExportResources

    plant(Plan(Path(os.environ[PLAN])))
    return {ExportResources: ExportResources.from_environment}


def plant(plan: Plan) -> None:
    from paddock.engines.trino.client import TrinoClient
    from paddock.exports import delivering, running
    from paddock.exports.writing.output import Output
    from paddock.jobs.turn import Turn
    from paddock.storage.drafts import Draft
    from paddock.storage.store import Store

    watch(plan, running, "run", before="claimed", after="returned", failed="raised")
    watch(plan, running, "clean", after="cleaned")
    watch(plan, Turn, "save", before=_saving, after=_saved)
    watch(plan, TrinoClient, "submit", after=_posted)
    watch(plan, Output, "write", after="written")
    watch(plan, Output, "close", before="streamed")
    watch(plan, Draft, "add", after="uploaded")
    watch(plan, Draft, "seal", before="sealing", after="sealed")
    watch(plan, Draft, "discard", after="discarded")
    watch(plan, Store, "read_range", before="fetching", after="fetched")
    watch(plan, Store, "copy_to", after="copied")
    watch(plan, Store, "put", after=_after_put)
    watch(plan, Store, "replace", before="delivering", after="delivered")
    watch(plan, Store, "delete", after=_deleted)
    watch(plan, delivering, "undo", after="undone")
    _watch_open(plan)
    _watch_files(plan)
    _without_spares()


def watch(
    plan: Plan, owner: Any, name: str, *, before: Point = None, after: Point = None, failed: str | None = None
) -> None:
    original = getattr(owner, name)

    async def watched(*arguments: Any, **named: Any) -> Any:
        if point := _found(before, arguments):
            await plan.at(point)
        try:
            result = await original(*arguments, **named)
        except BaseException:
            if failed is not None:
                await plan.at(failed)
            raise
        if point := _found(after, arguments):
            await plan.at(point)
        return result

    setattr(owner, name, watched)


def _found(point: Point, arguments: Sequence[Any]) -> str | None:
    return point(*arguments) if callable(point) else point


def _saving(turn: Any, state: dict[str, Any]) -> str | None:
    """Reached once more right before the destination's manifest."""
    return "deciding" if "sealed" in state else None


def _saved(turn: Any, state: dict[str, Any]) -> str:
    if "sealed" in state:
        return "decided"
    return "started" if "handle" in state else "draft_saved"


def _posted(client: Any, sql: str, *_: Any) -> str | None:
    """The export's own query, not one that asks something about it."""
    return None if "LIMIT 0" in sql or "connector_name" in sql or sql.startswith("DROP") else "posted"


def _after_put(store: Any, key: str, data: bytes) -> str | None:
    return "previous_kept" if key.endswith("/_previous.json") else None


def _deleted(store: Any, keys: list[str]) -> str | None:
    return "forgotten" if keys[-1:] and keys[-1].endswith("/_previous.json") else "deleted"


def _watch_open(plan: Plan) -> None:
    from paddock.engines.children.local import LocalEngine

    original = LocalEngine.open

    @asynccontextmanager
    async def opened(engine: LocalEngine, *arguments: Any) -> AsyncIterator[Any]:
        async with original(engine, *arguments) as stream:
            await plan.at("opened")
            yield stream

    setattr(LocalEngine, "open", opened)  # noqa: B010  a method, to a type checker, is not assigned to


def _without_spares() -> None:
    """A process started ahead for the next query is one too many for a runner that dies."""
    from paddock.engines.children.process import Child, Children

    def take(children: Any) -> Child:
        return Child(children._run)

    setattr(Children, "_take", take)  # noqa: B010  as above


def _watch_files(plan: Plan) -> None:
    """Between a file under its temporary name and the same under its own."""
    rename, link = os.rename, os.link

    def watched_rename(source: Any, target: Any, **folders: Any) -> None:
        name = str(target)
        if name.startswith("part-"):
            plan.reached("uploading")
        elif JOB_FILE.match(name):
            plan.reached("copying")
        elif name == "_manifest.json":
            plan.reached("publishing")  # over an earlier one
        rename(source, target, **folders)

    def watched_link(source: Any, target: Any, **options: Any) -> None:
        if target == "_manifest.json":
            folder = os.readlink(f"/proc/self/fd/{options['dst_dir_fd']}")
            plan.reached("publishing" if "/lake/" in folder else "creating_manifest")
        link(source, target, **options)

    for name, watched in (("rename", watched_rename), ("link", watched_link)):
        setattr(os, name, watched)


def worker_of(core: "Core", plan: Path, name: str, concurrency: int = 10) -> "Worker":
    from prometheus_client import CollectorRegistry

    from paddock.known_kinds import worker_kinds
    from paddock.metrics import Metrics
    from paddock.worker.processes import ProcessRunners, RunnerOptions
    from paddock.worker.settings import Settings
    from paddock.worker.supervisor import Worker

    options = RunnerOptions(
        kinds="paddock.known_kinds:worker_kinds",
        resources="tests.exports.crashing:resources",
        environment={"PADDOCK_CONFIG": str(plan.with_name("paddock.toml")), PLAN: str(plan)},
    )
    return Worker(
        link=core.link(),
        kinds=worker_kinds(),
        runners=ProcessRunners(options),
        settings=Settings(worker_id=name, concurrency=concurrency),
        version="0",
        metrics=Metrics(CollectorRegistry()),
    )


async def work(dsn: str, plan: str) -> None:
    """A worker as a process of its own, to be killed as a whole."""
    from paddock.jobs.core import open_core
    from paddock.known_kinds import all_kinds

    async with open_core(dsn, all_kinds()) as core:
        await worker_of(core, Path(plan), "doomed").run()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
