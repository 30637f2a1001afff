"""The control plane process: API, rescuer and schedules, and a worker inside for internal kinds.

Any number of them may run on one database. A database that is away at the start is waited for; one that goes away
later stops nothing here: loops and the worker inside try again, /ready says so, and requests get a 503.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import structlog
from fastapi import FastAPI

import paddock
from paddock import doctor, dumps, exports, garbage, tracing
from paddock.api.app import close, create_app, create_internal_app, create_metrics_app
from paddock.api.errors import database_away
from paddock.api.server import Server, listen
from paddock.background.looping import Loop
from paddock.config import Config
from paddock.db.migrate import migrate
from paddock.db.pool import UNAVAILABLE, Database
from paddock.dumps import removing as dump_removing
from paddock.exports import removing
from paddock.jobs import upkeep, wire
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.figures import sample_gauges
from paddock.jobs.kinds import Kinds
from paddock.jobs.link import Link, LinkDown
from paddock.known_kinds import all_kinds
from paddock.stopping import end
from paddock.web import pages
from paddock.web.pages.lost import lost
from paddock.worker.local import LocalRunner
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker

EVERYWHERE = "0.0.0.0"  # noqa: S104  a control plane is asked from outside its pod
RETRY_START = timedelta(seconds=5)
GAUGES_EVERY = timedelta(seconds=10)

T = TypeVar("T")
log = structlog.get_logger()


class ServeError(Exception):
    """A sentence for the person who started it."""

    code = "serve"


async def serve(config: Config, *, kinds: Kinds | None = None, stop: asyncio.Event | None = None) -> None:
    """Runs until `stop` is set, or SIGTERM or SIGINT when it is not given."""
    if config.database_url is None:
        raise ServeError(
            "paddock serve needs a PostgreSQL: set PADDOCK_DATABASE_URL=postgresql://user:password@host/database. "
            "`paddock up` brings its own."
        )
    stop = stop or _stop_on_signals()
    tracing.configure(config.otel_endpoint, "paddock-serve")
    if config.log_level != "debug":
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # what it says of its start we say ourselves
        logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)  # a traceback per retry while the database is away
    host = config.host or EVERYWHERE
    doors = _bind(config, host)
    dsn = config.database_url.get_secret_value()
    try:
        async with _core(dsn, config, kinds or all_kinds(config), stop) as core:
            if core is not None:
                await _run(core, config, host, doors, stop)
    finally:
        for door in doors.all():
            door.close()
        tracing.shutdown()


@dataclass
class Doors:
    """The sockets it listens on; bound first, so that a taken port is said before anything else happens."""

    main: socket.socket
    internal: socket.socket | None = None
    metrics: socket.socket | None = None

    def all(self) -> Sequence[socket.socket]:
        return [door for door in (self.main, self.internal, self.metrics) if door is not None]


def _bind(config: Config, host: str) -> Doors:
    doors = []
    for port in (config.port, config.internal_port, config.metrics_port):
        try:
            doors.append(None if port is None else listen(host, port))
        except OSError as problem:
            for door in doors:
                if door is not None:
                    door.close()
            raise ServeError(
                f"Port {port} on {host} cannot be used: {problem.strerror}. Choose another (--port N)."
            ) from None
    main, internal, metrics = doors
    assert main is not None
    return Doors(main, internal, metrics)


@asynccontextmanager
async def _core(dsn: str, config: Config, kinds: Kinds, stop: asyncio.Event) -> AsyncIterator[Core | None]:
    """An open core on a migrated database, however long that takes; None when told to stop before."""
    settings = CoreSettings(
        beat=config.beat,
        lease=config.lease,
        claim_grace=config.claim_grace,
        history_kept=config.history_kept,
        audit_kept=config.audit_kept,
        logs_kept=config.logs_kept,
        webhook_allow_private=config.webhook_allow_private,
    )
    async with contextlib.AsyncExitStack() as stack:
        core: Core | None = None
        while core is None and not stop.is_set():
            try:
                await migrate(dsn)
                core = await stack.enter_async_context(
                    open_core(dsn, kinds, settings, durable=config.durable_pool, relaxed=config.relaxed_pool)
                )
                await upkeep.ensure_schedules(core)
                await removing.ensure_schedules(core)
                await dump_removing.ensure_schedules(core)
            except UNAVAILABLE as problem:
                if not database_away(problem):
                    raise ServeError(f"The database refused: {problem}.") from problem
                core = None
                await stack.aclose()
                log.warning("database_unavailable", error=f"{type(problem).__name__}: {problem}", doing="trying again")
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), RETRY_START.total_seconds())
        yield core


async def _run(core: Core, config: Config, host: str, doors: Doors, stop: asyncio.Event) -> None:
    app = create_app(
        core,
        config,
        host=host,
        routers=[doctor.router(), *exports.routers(), *dumps.routers()],
        routes=pages.routes(),
        lost=lost,
    )
    servers = [(Server(app), doors.main)]
    if doors.internal is not None:
        servers.append((Server(create_internal_app(app, host), main=app), doors.internal))
    if doors.metrics is not None:
        servers.append((Server(create_metrics_app(app, host), main=app), doors.metrics))
    inside = Inside(core, config)
    loops = [
        # Well within a beat: a tick that comes later than one counts as a gap in which no lease runs.
        Loop("rescuer and schedules", core.tick, min(config.rescue_every, config.beat / 4)),
        Loop("time-outs", core.keep_timeouts, core.settings.timeouts_every),
        Loop("gauges", lambda: sample_gauges(core.db, core.metrics), GAUGES_EVERY),
    ]
    _watch_health(app, lambda: inside.healthy and all(loop.healthy for loop in loops))
    async with contextlib.AsyncExitStack() as stack:
        for loop in loops:
            await stack.enter_async_context(_running(loop.run()))
        answering = [asyncio.create_task(server.serve(sockets=[door])) for server, door in servers]
        working = asyncio.create_task(inside.run())
        garbage.settle()
        log.info("serving", host=host, port=doors.main.getsockname()[1], version=paddock.__version__)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, *answering, working], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        log.info("stopping")
        # Whoever waits is answered now, empty; requests are taken until the passes that run have ended.
        close(app)
        inside.stop()
        await asyncio.gather(working, return_exceptions=True)
        for server, _ in servers:
            server.should_exit = True
        await asyncio.gather(*answering)
        working.result()


def _watch_health(app: FastAPI, healthy: Callable[[], bool]) -> None:
    """/health asks it: this process is of no use when its own loops stand still, whatever the database does."""
    app.state.plane.healthy = healthy


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        await end(task)


def _stop_on_signals() -> asyncio.Event:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


@dataclass
class Inside:
    """The worker inside, for internal kinds. One that fails for a reason nobody foresaw is made anew."""

    core: Core
    config: Config
    _worker: Worker | None = None
    _stopped: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def healthy(self) -> bool:
        return self._worker is None or self._worker.healthy

    def stop(self) -> None:
        self._stopped.set()
        if self._worker is not None:
            self._worker.stop()

    async def run(self) -> None:
        while not self._stopped.is_set():
            self._worker = self._make()
            try:
                await self._worker.run()
            except Exception:
                log.exception("worker_inside_failed", doing="starting it again")
            if not self._stopped.is_set():
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), 1)

    def _make(self) -> Worker:
        kinds = Kinds(kind for kind in self.core.kinds if kind.internal)
        resources: dict[type, object] = {Core: self.core, Database: self.core.db, Config: self.config}
        return Worker(
            link=PatientLink(self.core.link(internal=True)),
            kinds=kinds,
            runners=LocalRunner(kinds, resources),
            settings=Settings(worker_id=f"serve-{socket.gethostname()}-{os.getpid()}"),
            version=paddock.__version__,
            metrics=self.core.metrics,
        )


class PatientLink(Link):
    """The direct line, on which a database that is away is no answer: the worker keeps its jobs and asks again."""

    def __init__(self, direct: Link) -> None:
        self._direct = direct

    async def register(self, message: wire.Register) -> wire.Registered:
        return await self._asked(self._direct.register(message))

    async def claim(self, message: wire.Claim) -> wire.Claimed:
        return await self._asked(self._direct.claim(message))

    async def beat(self, session: UUID, message: wire.Beat) -> wire.Verdicts:
        return await self._asked(self._direct.beat(session, message))

    async def save(self, message: wire.Save) -> wire.Verdicts:
        return await self._asked(self._direct.save(message))

    async def finish(self, message: wire.Finish) -> wire.Verdicts:
        return await self._asked(self._direct.finish(message))

    async def release(self, message: wire.Release) -> wire.Verdicts:
        return await self._asked(self._direct.release(message))

    async def logs(self, message: wire.Logs) -> None:
        await self._asked(self._direct.logs(message))

    async def close(self) -> None:
        await self._direct.close()

    async def _asked(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except UNAVAILABLE as problem:
            if database_away(problem):
                raise LinkDown(f"The database cannot be reached: {problem}") from problem
            raise
