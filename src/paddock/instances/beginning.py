"""What the control plane does for instances when it starts: it makes sure that their folder is the one it knows, and finds out
what became of those that should run. Under `paddock up` whatever ran ended with the one before: it is started once more."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import structlog

from paddock.clock import Clock, SystemClock
from paddock.config import Config
from paddock.db.pool import Transaction
from paddock.instances import finding, moving, talking, watching
from paddock.instances.model import SQL
from paddock.instances.running_on import installation_of, runtime_of
from paddock.jobs.core import Core
from paddock.jobs.errors import InfrastructureError
from paddock.runtimes.local import LocalRuntime

AT_ONCE = 100
# Until an instance is looked at again that a job was at work for: most are at their end.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0
log = structlog.get_logger()


class AnotherPlace(Exception):
    code = "another_place"


@asynccontextmanager
async def alongside(core: Core, config: Config) -> AsyncIterator[None]:
    """Around the life of a control plane."""
    runtime = runtime_of(config)
    hearing = Hearing(core, config)
    async with contextlib.AsyncExitStack() as stack:
        if (installation := installation_of(config)) is not None:
            installation.attach(core.db)
        if runtime is not None:
            await stack.enter_async_context(runtime.alongside(hearing.changed))
            await stack.enter_async_context(hearing.at_work())
        await at_start(core, config)
        try:
            yield
        finally:
            await talking.close_session()


class Hearing:
    """Looks after each instance of which the runtime says that something ended. Whatever is missed is found by the pass."""

    def __init__(self, core: Core, config: Config, clock: Clock | None = None) -> None:
        self._core, self._config, self._clock = core, config, clock or SystemClock()
        self._waiting: dict[UUID, None] = {}
        self._heard = asyncio.Event()

    def changed(self, id: UUID) -> None:
        self._waiting[id] = None
        self._heard.set()

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._heard.wait()
            self._heard.clear()
            busy: list[UUID] = []
            while self._waiting:
                id = next(iter(self._waiting))
                del self._waiting[id]
                if not await self._look(id):
                    busy.append(id)
            if not busy:
                pause = FIRST_PAUSE
                continue
            await self._clock.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            for id in busy:
                self.changed(id)

    async def _look(self, id: UUID) -> bool:
        """False: a job is at work for it, which sees it or does not: look again once that is over."""
        try:
            job = await self._core.db.fetchval(SQL["kind_at_work"], id)
            if job is not None:
                return str(job) == moving.STOP
            await finding.look_after(self._core, self._config, id)
        except Exception as problem:
            log.warning("instance_not_looked_after", instance_id=str(id), error=f"{type(problem).__name__}: {problem}")
        return True


async def at_start(core: Core, config: Config) -> None:
    runtime = runtime_of(config)
    if runtime is None:
        return
    if isinstance(runtime, LocalRuntime):
        await _take_place(core, runtime)
    await _go_on_stopping(core)
    found: dict[str, int] = {}
    after = UUID(int=0)
    while rows := await core.db.fetch(SQL["to_be_found"], after, AT_ONCE):
        for row in rows:
            try:
                what = await finding.look_after(core, config, row["id"], ask=False)  # the first pass asks
            except InfrastructureError as problem:  # away, or it refuses us: they go on, and the pass looks again
                log.warning("instances_not_looked_after", error=problem.message)
                return
            found[what] = found.get(what, 0) + 1
        after = rows[-1]["id"]
    if found:
        log.info("instances_found", **found)


async def _take_place(core: Core, runtime: LocalRuntime) -> None:
    place = runtime.place()

    async def write(tx: Transaction) -> None:
        await tx.execute(SQL["lock_place"])
        known = await tx.fetchval(SQL["place"])
        if known == place:
            return
        if known is not None and (live := await tx.fetchval(SQL["some_live"])):
            raise AnotherPlace(
                f"The database knows {live} instances in another folder than {runtime.root}. The local runtime is for one"
                " machine: start this control plane with the data folder they live in (PADDOCK_DATA), or delete them there,"
                " or set PADDOCK_RUNTIME=none here."
            )
        await tx.execute(SQL["take_place"], place)

    await core.db.repeated(write)


async def _go_on_stopping(core: Core) -> None:
    """Those that are stopping and that no job is at work for."""
    for item in await watching.left_stopping(core.db, None, AT_ONCE):
        await watching.stop_again(core, item.id)
