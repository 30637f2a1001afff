"""The control plane process: API, rescuer and schedules, and two workers inside for internal kinds.

Any number of them may run on one database. It listens from its first second. A database that is away at the start is
waited for; one that goes away later stops nothing here: loops and the workers inside try again. Meanwhile /ready says so,
requests get a 503, and /health is well: nobody gains by starting this process again.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

import structlog
from fastapi import FastAPI
from starlette.types import ASGIApp

import paddock
from paddock import doctor, garbage, tracing
from paddock.api.app import close, create_app, create_internal_app, create_metrics_app
from paddock.api.database_problems import database_away, database_problem
from paddock.api.server import GRACE_SECONDS, Server, listen, raise_file_limit
from paddock.api.starting import Starting, at_the_edge
from paddock.api.token_files import TokenFiles, read_token_files
from paddock.background.looping import Loop
from paddock.capability import capabilities, each
from paddock.config import Config
from paddock.db.migrate import migrate
from paddock.db.pool import UNAVAILABLE, Database
from paddock.jobs import schedules, upkeep, wire
from paddock.jobs.core import Core, CoreSettings, open_core
from paddock.jobs.figures import overviews
from paddock.jobs.figures.counting import sample_gauges
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
TOKENS_EVERY = timedelta(seconds=20)
# From the signal to stop; the manifests give this process 10 s more.
QUERIES_END_WITHIN = timedelta(seconds=60)
FILES_BESIDES_CONNECTIONS = 256  # database pools, the object store, dumps and their pipes

T = TypeVar("T")
log = structlog.get_logger()


class ServeError(Exception):
    """A sentence for the person who started it."""

    code = "serve"


@dataclass
class DatabaseNotice:
    """What whoever keeps the database says is wrong with it; None: nothing."""

    text: str | None = None


async def serve(
    config: Config,
    *,
    kinds: Kinds | None = None,
    stop: asyncio.Event | None = None,
    notice: DatabaseNotice | None = None,
    queries_end_within: timedelta = QUERIES_END_WITHIN,
) -> None:
    """Runs until `stop` is set, or SIGTERM or SIGINT when it is not given. /health repeats the notice."""
    if config.database_url is None:
        raise ServeError(
            "`paddock serve` needs a PostgreSQL: set PADDOCK_DATABASE_URL=postgresql://user:password@host/database. "
            "`paddock up` brings its own."
        )
    stop = stop or _stop_on_signals()
    tracing.configure(config.otel_endpoint, "paddock-serve")
    if config.log_level != "debug":
        logging.getLogger("uvicorn.error").setLevel(logging.WARNING)  # what it says of its start we say ourselves
        logging.getLogger("asyncpg.pool").setLevel(logging.ERROR)  # a traceback per retry while the database is away
    host = config.host or EVERYWHERE
    kinds = kinds or all_kinds(config)
    _check_scaled(config, kinds)
    if config.tokens_dir is not None:
        read_token_files(config.tokens_dir)
    sockets = _bind(config, host)
    dsn = config.database_url.get_secret_value()
    notice = notice or DatabaseNotice()
    starting = Starting(lambda: notice.text)
    ports = Ports(sockets, at_the_edge(starting, config, host), config)
    try:
        async with ports, _core(dsn, config, kinds, stop, starting) as core:
            if core is not None:
                async with contextlib.AsyncExitStack() as stack:
                    for _, alongside in each("alongside"):
                        await _enter(stack, partial(alongside, core, config), stop, starting)
                    if not stop.is_set():
                        await _run(core, config, host, ports, stop, notice, queries_end_within)
    finally:
        for listening in sockets.all():
            listening.close()
        tracing.shutdown()


def _check_scaled(config: Config, kinds: Kinds) -> None:
    if unknown := [name for name in config.scaled_kinds if name not in kinds]:
        raise ServeError(
            f"PADDOCK_SCALED_KINDS names {unknown[0]}, and there is no such kind here: {', '.join(k.name for k in kinds)}."
        )


@dataclass
class ListeningSockets:
    """The sockets it listens on; bound first, so that a taken port is said before anything else happens."""

    main: socket.socket
    internal: socket.socket | None = None
    metrics: socket.socket | None = None

    def all(self) -> Sequence[socket.socket]:
        return [door for door in (self.main, self.internal, self.metrics) if door is not None]


class Ports:
    """The servers on those sockets. They answer as soon as this is entered, first what `starting` says."""

    def __init__(self, sockets: ListeningSockets, starting: ASGIApp, config: Config) -> None:
        self._sockets = sockets
        self._config = config
        self.servers = {listening: Server(starting, config) for listening in sockets.all()}
        self.answering: list[asyncio.Task[None]] = []

    @property
    def number(self) -> int:
        return int(self._sockets.main.getsockname()[1])

    async def __aenter__(self) -> None:
        files = self._config.max_connections * len(self.servers) + FILES_BESIDES_CONNECTIONS
        if (most := raise_file_limit(files)) < files:
            log.warning(
                "few_open_files", limit=most, wanted=files, doing="raise ulimit -n or lower PADDOCK_MAX_CONNECTIONS"
            )
        self.answering = [
            asyncio.create_task(server.serve(sockets=[listening])) for listening, server in self.servers.items()
        ]

    def turn_to(self, app: FastAPI, host: str) -> None:
        self.servers[self._sockets.main].turn_to(app)
        if self._sockets.internal is not None:
            self.servers[self._sockets.internal].turn_to(create_internal_app(app, host), main=app)
        if self._sockets.metrics is not None:
            self.servers[self._sockets.metrics].turn_to(create_metrics_app(app, host), main=app)

    async def stop(self, grace: float = GRACE_SECONDS) -> None:
        for server in self.servers.values():
            server.stop(grace)
        await asyncio.gather(*self.answering)

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


def _bind(config: Config, host: str) -> ListeningSockets:
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
    return ListeningSockets(main, internal, metrics)


@asynccontextmanager
async def _core(
    dsn: str, config: Config, kinds: Kinds, stop: asyncio.Event, starting: Starting
) -> AsyncIterator[Core | None]:
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
                await overviews.declare_scaled(core.db, config.scaled_kinds)
                await upkeep.ensure_schedules(core)
                for declared in (schedule for capability in capabilities() for schedule in capability.schedules):
                    await schedules.ensure(core, declared.name, declared.kind, declared.every)
            except UNAVAILABLE as problem:
                core = None
                await stack.aclose()
                await _wait_for_database(problem, stop, starting)
        yield core


async def _enter(
    stack: contextlib.AsyncExitStack,
    alongside: Callable[[], contextlib.AbstractAsyncContextManager[None]],
    stop: asyncio.Event,
    starting: Starting,
) -> None:
    """What capabilities do at a start asks the database too, which may have gone since it was opened."""
    while not stop.is_set():
        try:
            await stack.enter_async_context(alongside())
        except UNAVAILABLE as problem:
            if isinstance(problem, OSError) and problem.filename is not None:
                raise  # a file of ours, which no database brings back
            await _wait_for_database(problem, stop, starting)
        else:
            return


async def _wait_for_database(problem: Exception, stop: asyncio.Event, starting: Starting) -> None:
    """Raises where waiting does not help."""
    if not database_away(problem):
        raise ServeError(f"The database refused: {problem}.") from problem
    starting.problem = database_problem(problem) or starting.problem
    log.warning("database_unavailable", error=f"{type(problem).__name__}: {problem}", doing="trying again")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stop.wait(), RETRY_START.total_seconds())


async def _run(
    core: Core,
    config: Config,
    host: str,
    ports: Ports,
    stop: asyncio.Event,
    notice: DatabaseNotice,
    queries_end_within: timedelta,
) -> None:
    app = create_app(
        core,
        config,
        host=host,
        routers=[doctor.router()],
        routes=pages.routes(),
        lost=lost,
    )
    inside = [InternalWorker(core, config, team) for team in teams(core.kinds)]
    loops = [
        # Well within a beat: a tick that comes later than one counts as a gap in which no lease runs.
        Loop("rescuer and schedules", core.tick, min(config.rescue_every, config.beat / 4)),
        Loop("time-outs", core.keep_timeouts, core.settings.timeouts_every),
        Loop("gauges", lambda: sample_gauges(core.db, core.metrics), GAUGES_EVERY),
        *(Loop(f"gauges of {owner.name}", partial(gauges, core), GAUGES_EVERY) for owner, gauges in each("gauges")),
    ]
    if config.tokens_dir is not None:
        loops.append(Loop("token files", TokenFiles(config.tokens_dir, app.state.plane.tokens).sync, TOKENS_EVERY))
        await loops[-1].once()
    _watch_health(app, lambda: all(worker.healthy for worker in inside) and all(loop.healthy for loop in loops))
    app.state.plane.database_notice = lambda: notice.text
    app.state.plane.pass_problems = lambda: _database_problems(loops[:2])
    async with contextlib.AsyncExitStack() as stack:
        for loop in loops:
            await stack.enter_async_context(_running(loop.run()))
        ports.turn_to(app, host)
        working = [asyncio.create_task(worker.run()) for worker in inside]
        garbage.settle()
        log.info("serving", host=host, port=ports.number, version=paddock.__version__)
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([stopping, *ports.answering, *working], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        stopped_at = time.monotonic()
        log.info("stopping")
        # Whoever waits is answered now, empty; requests are taken until the passes that run have ended.
        close(app)
        for worker in inside:
            worker.stop()
        await asyncio.gather(*working, return_exceptions=True)
        await ports.stop(grace_left(queries_end_within, time.monotonic() - stopped_at))
        for work in working:
            work.result()


def grace_left(queries_end_within: timedelta, passed: float) -> float:
    """What is being answered, queries to instances above all, may go on for so many seconds after the passes have ended."""
    return max(GRACE_SECONDS, queries_end_within.total_seconds() - passed)


def _database_problems(writing: Sequence[Loop]) -> list[Exception]:
    """What the passes that write last failed with. A tick that only took too long says nothing of the database."""
    problems = [loop.problem for loop in writing]
    return [problem for problem in problems if problem is not None and not isinstance(problem, TimeoutError)]


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


@dataclass(frozen=True)
class Team:
    """Internal kinds that share a worker, and how many slots it has."""

    suffix: str
    kinds: Kinds
    slots: int


def teams(kinds: Kinds) -> list[Team]:
    """Housekeeping has a worker of its own with a slot for each kind: nothing that people cause keeps it waiting. Kinds
    that bound themselves come on top of the usual slots of the other one, so that they leave those to the rest."""
    internal = [kind for kind in kinds if kind.internal]
    upkeep, rest = (Kinds(kind for kind in internal if kind.housekeeping is its) for its in (True, False))
    bounded = sum(kind.concurrency or 0 for kind in rest)
    both = Team("", rest, Settings.concurrency + bounded), Team("-housekeeping", upkeep, len(upkeep))
    return [team for team in both if team.kinds]


@dataclass
class InternalWorker:
    """A worker inside, for internal kinds. One that fails for a reason nobody foresaw is made anew."""

    core: Core
    config: Config
    team: Team
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
        kinds = self.team.kinds
        resources: dict[type, object] = {Core: self.core, Database: self.core.db, Config: self.config}
        return Worker(
            link=PatientLink(self.core.link(internal=True)),
            kinds=kinds,
            runners=LocalRunner(kinds, resources),
            settings=Settings(
                worker_id=f"serve-{socket.gethostname()}-{os.getpid()}{self.team.suffix}",
                concurrency=self.team.slots,
                kind_concurrency={kind.name: 1 for kind in kinds if kind.housekeeping},
            ),
            version=paddock.__version__,
            metrics=self.core.metrics,
        )


class PatientLink(Link):
    """The direct line, on which a database that is away is no answer: the worker keeps its jobs and asks again."""

    def __init__(self, direct: Link) -> None:
        self._direct = direct

    async def register(self, message: wire.Register) -> wire.Registered:
        return await self._patiently(self._direct.register(message))

    async def claim(self, message: wire.Claim) -> wire.Claimed:
        return await self._patiently(self._direct.claim(message))

    async def beat(self, session: UUID, message: wire.Beat) -> wire.Verdicts:
        return await self._patiently(self._direct.beat(session, message))

    async def save(self, message: wire.Save) -> wire.Verdicts:
        return await self._patiently(self._direct.save(message))

    async def finish(self, message: wire.Finish) -> wire.Verdicts:
        return await self._patiently(self._direct.finish(message))

    async def release(self, message: wire.Release) -> wire.Verdicts:
        return await self._patiently(self._direct.release(message))

    async def logs(self, message: wire.Logs) -> None:
        await self._patiently(self._direct.logs(message))

    async def close(self) -> None:
        await self._direct.close()

    async def _patiently(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except UNAVAILABLE as problem:
            if (told := database_problem(problem)) is not None:
                raise LinkDown(f"{told.message} ({problem})") from problem
            raise
