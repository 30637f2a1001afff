"""The worker process, put together: the line to its control plane, its kinds, its runners."""

import asyncio
from collections.abc import Callable
from uuid import UUID

import structlog

import paddock
from paddock import garbage, tracing
from paddock.config import Config
from paddock.dumps import copies
from paddock.dumps.kinds import PREFIX, reachable
from paddock.dumps.settings import FileDatabase, databases_from
from paddock.jobs import wire
from paddock.jobs.kinds import Kinds
from paddock.jobs.link import LinkDown, LinkRefused
from paddock.known_kinds import worker_kinds
from paddock.worker.health import serve_health
from paddock.worker.link import HttpLink
from paddock.worker.processes import ProcessRunners, RunnerOptions
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker

log = structlog.get_logger()

TIDY_SECONDS = 3600.0
# What the control plane takes in one question.
ASKED_AT_ONCE = 1_000


class WorkError(Exception):
    """A sentence for the person who started it."""

    code = "worker"


async def work(config: Config, *, once: bool = False) -> int:
    """Runs until SIGTERM or SIGINT, or with `once` one job to its end. Returns the exit code."""
    if config.server is None:
        raise WorkError(
            "This worker does not know its control plane: name it with --server URL or PADDOCK_SERVER, or start one "
            "on this machine with `paddock up`."
        )
    supervisor = Worker(
        link=HttpLink(config.server, token_of(config)),
        kinds=chosen_kinds(config),
        runners=ProcessRunners(
            RunnerOptions(
                kinds="paddock.known_kinds:worker_kinds",
                resources="paddock.known_kinds:worker_resources",
                environment=for_runners(config),
                log_level=config.log_level,
                otel_endpoint=config.otel_endpoint,
            )
        ),
        settings=Settings.from_config(config),
        version=paddock.__version__,
    )
    tracing.configure(config.otel_endpoint, "paddock-worker")
    garbage.settle()
    tidying = asyncio.create_task(keep_no_old_copies(config))
    try:
        if once:
            return await supervisor.run_once(signals=True)
        async with serve_health(supervisor, config.worker_port):
            return await supervisor.run(signals=True)
    except OSError as problem:
        raise WorkError(
            f"Port {config.worker_port} cannot be used for /health and /metrics: {problem.strerror}. Set "
            "PADDOCK_WORKER_PORT to another one; 0 takes any."
        ) from problem
    finally:
        tidying.cancel()
        tracing.shutdown()


async def keep_no_old_copies(config: Config) -> None:
    """Now and then, not only at the start: a dump whose copy is here may have gone on, and ended, on another machine."""
    while True:
        await remove_old_copies(config)
        await asyncio.sleep(TIDY_SECONDS)


async def remove_old_copies(config: Config) -> None:
    """Copies of databases whose dumps ended without anybody who could remove them. Another Paddock's jobs are not known
    to ours, and so its copies stay."""
    folders = [database.copies for database in databases_from(config).values() if isinstance(database, FileDatabase)]
    found = {name: folder for folder in folders for name in copies.jobs_with_copies(folder)}
    if not found or config.server is None:
        return
    link, names = HttpLink(config.server, token_of(config)), list(found)
    try:
        for start in range(0, len(names), ASKED_AT_ONCE):
            asked = wire.Jobs(ids=[UUID(name) for name in names[start : start + ASKED_AT_ONCE]])
            for id in (await link.ended(asked)).ids:
                log.info("removing the copy of an ended dump", job=str(id))
                await asyncio.to_thread(copies.remove, found[str(id)], str(id))
    except (LinkDown, LinkRefused) as problem:
        log.warning("old copies of databases stay for now", reason=str(problem))
    finally:
        await link.close()


def for_runners(config: Config) -> dict[str, str]:
    """A runner loads the configuration itself; what was told as an argument it would not see."""
    return {"PADDOCK_DATA": str(config.data), "PADDOCK_OBJECT_STORE": config.object_store}


def token_of(config: Config) -> Callable[[], str]:
    """Reads it anew for each call: a mounted secret changes while we run."""
    if config.bearer_token() is None:
        raise WorkError(
            "This worker has no token: set PADDOCK_TOKEN or PADDOCK_TOKEN_FILE; "
            "`paddock tokens create --role worker --name NAME` makes one."
        )

    def token() -> str:
        secret = config.bearer_token()
        assert secret is not None
        return secret.get_secret_value()

    return token


def out_of_reach(config: Config) -> set[str]:
    """Dumps of databases that another worker may have, and this one has not."""
    missing = {name: database for name, database in databases_from(config).items() if not reachable(database)}
    for name in missing:
        log.warning("this worker cannot open a database and offers no dumps of it", database=name)
    return {f"{PREFIX}{name}" for name in missing}


def chosen_kinds(config: Config) -> Kinds:
    known = worker_kinds(config)
    if config.worker_kinds is None:
        return Kinds(kind for kind in known if kind.name not in out_of_reach(config))
    for name in config.worker_kinds:
        if name not in known:
            raise WorkError(f"This worker has no kind '{name}'; it has {', '.join(kind.name for kind in known)}.")
    return Kinds(known[name] for name in config.worker_kinds)
