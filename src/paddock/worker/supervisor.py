"""The worker: claims jobs, lets runners run them, and answers to the control plane for each of them.

It runs no user code itself (except inside `paddock serve`, where handlers share its loop), so that beats go on while
a handler blocks, and SIGTERM is obeyed while one is stuck.
"""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Coroutine
from datetime import timedelta
from typing import Any

import structlog

from paddock import metrics as metrics_module
from paddock.clock import Clock, SystemClock
from paddock.jobs import wire
from paddock.jobs.kinds import Kinds
from paddock.jobs.link import Link
from paddock.metrics import Metrics
from paddock.stopping import cancel
from paddock.worker.claiming import Claims
from paddock.worker.holding import Holding
from paddock.worker.once import Once
from paddock.worker.patience import PatientCalls
from paddock.worker.running import Runners
from paddock.worker.session import WorkerSession
from paddock.worker.settings import Settings
from paddock.worker.shipping import Shipper
from paddock.worker.slots import Slots
from paddock.worker.watching import Watch

# After the longest grace, two seconds in all: by then every handler was asked and then killed; then to give back
# what they held; then to say good-bye.
KILLED_SECONDS = 0.8
LAST_SECONDS = 0.6
ALL_SECONDS = 1.8
CLOSE_SECONDS = 0.1
LOOK_SECONDS = 0.02
HEALTHY_SECONDS = 5.0

log = structlog.get_logger(__name__)


class Worker:
    """Made and run inside a running loop. `run` returns the exit code once `stop` was called (or a signal came).

    It counts what only a worker sees (handler seconds, heartbeat lag, stale writes, dropped log bytes); claims, finishes
    and verdicts are counted by the control plane, once."""

    def __init__(
        self,
        *,
        link: Link,
        kinds: Kinds,
        runners: Runners,
        settings: Settings,
        version: str,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self.metrics = metrics or metrics_module.default()
        self._link = link
        self._settings = settings
        names = [kind.name for kind in kinds]
        limits = {kind.name: kind.concurrency for kind in kinds if kind.concurrency is not None}
        slots = Slots(
            names,
            settings.concurrency,
            settings.submitted_concurrency,
            {**limits, **settings.kind_concurrency},
        )
        line = PatientCalls(self._clock, settings.empty_backoff)
        self._shipper = Shipper(link.logs, self._clock, self.metrics)
        self.holding = Holding(
            link=link,
            line=line,
            kinds=kinds,
            runners=runners,
            slots=slots,
            shipper=self._shipper,
            clock=self._clock,
            metrics=self.metrics,
            calls_in_flight=settings.claims_in_flight,
        )
        self._session = WorkerSession(
            link=link,
            line=line,
            holding=self.holding,
            register=wire.Register(
                worker_id=settings.worker_id, version=version, kinds=names, slots=settings.concurrency
            ),
            clock=self._clock,
            metrics=self.metrics,
        )
        self._claims = Claims(
            link=link,
            line=line,
            session=self._session,
            slots=slots,
            holding=self.holding,
            settings=settings,
            clock=self._clock,
        )
        self._watch = Watch(self.holding, self._session, self._clock)
        self.holding.guard = self._watch.guard
        self._stopping = asyncio.Event()
        self._at_once = asyncio.Event()

    @property
    def healthy(self) -> bool:
        """The supervisor's loop turns."""
        return self._clock.monotonic() - self._watch.ticked_at < HEALTHY_SECONDS

    @property
    def ready(self) -> bool:
        return self._session.alive() and not self._stopping.is_set()

    def stop(self) -> None:
        """As SIGTERM: running jobs get their grace. A second time: at once."""
        if self._stopping.is_set():
            self._at_once.set()
        self._stopping.set()

    async def run(self, *, signals: bool = False) -> int:
        """Until it is stopped. 0: everything it held was finished or given back."""
        await self._live(self._claims.run(), signals=signals)
        return 0 if self.holding.settled else 1

    async def run_once(self, *, wait: timedelta | None = None, signals: bool = False) -> int:
        """One job to its end or release, its cleanup and follow-ups included: 0 if all of them completed, or none came
        within `wait`; else 1."""
        code = await self._live(Once(self._claims, self.holding, self._clock).run(wait), signals=signals)
        return 1 if code is None else code

    async def _live(self, work: Coroutine[Any, Any, int | None], *, signals: bool) -> int | None:
        """Does the work until it is done or `stop` was called, then shuts down."""
        if signals:
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, self.stop)
        self.holding.open()
        keepers = [asyncio.create_task(self._watch.run())]
        opening = asyncio.create_task(self._session.open())
        working: asyncio.Task[int | None] | None = None
        try:
            if await self._first(opening, *keepers):
                # Not part of the work: beats, reports and log lines go on while jobs have their grace.
                keepers += map(
                    asyncio.create_task, (self._session.run(), self._session.run_reports(), self._shipper.run())
                )
                working = asyncio.create_task(work)
                await self._first(working, *keepers)
                code = working.result() if working.done() and not working.cancelled() else None
                working.cancel()
                await self._shut_down()
                return code
            return None
        finally:
            work.close()
            await cancel(opening, *keepers, *([working] if working else []))
            await self.holding.close()
            await self._briefly(self._link.close())

    async def _first(self, *tasks: asyncio.Task[Any]) -> bool:
        """Waits until one of them ends or `stop` is called; False for the latter. A failure among them is raised."""
        stopping = asyncio.create_task(self._stopping.wait())
        done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        for task in done:
            task.result()
        return stopping not in done

    async def _shut_down(self) -> None:
        """Stops claiming, waits out the graces, gives the rest back.

        Every wait here has an end, so that a control plane that does not answer cannot hold the process up: its
        session dies then, and the rescuer gives back what it held.
        """
        self._stopping.set()
        self._claims.closed = True
        self._watch.begin_shutdown()
        begun, grace = self._clock.monotonic(), self._watch.longest_grace()
        log.info("shutting_down", running=len(self.holding), longest_grace_seconds=grace)
        handing_back = asyncio.create_task(self._claims.stop())
        # The watch asks each handler to end after its grace, and kills it half a second later.
        if not await self._settled(handing_back, begun + grace + KILLED_SECONDS):
            now = self._clock.monotonic()
            self.holding.kill_all()
            self.holding.abandon()
            await self._settled(handing_back, min(now, begun + grace + KILLED_SECONDS) + LAST_SECONDS, final=True)
        await cancel(handing_back)
        if not self.holding.settled:
            log.warning("shut_down_unacknowledged", held=len(self.holding))
        # The last beat ends the session, so that nobody waits for its lease.
        left = begun + grace + ALL_SECONDS - self._clock.monotonic()
        await self._briefly(self._session.beat(dying=True), left / 2)
        await self._briefly(self._shipper.flush(), left / 2)

    async def _settled(self, handing_back: asyncio.Task[None], until: float, *, final: bool = False) -> bool:
        """Waits for everything held to be acknowledged; unless `final`, not longer than until a second `stop`."""
        while not (self.holding.settled and handing_back.done()):
            if self._clock.monotonic() >= until or (self._at_once.is_set() and not final):
                return False
            await self._clock.sleep(LOOK_SECONDS)
        return True

    async def _briefly(self, last: Awaitable[object], seconds: float = CLOSE_SECONDS) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, CLOSE_SECONDS)):
                await last
