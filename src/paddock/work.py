"""The worker process, put together: the line to its control plane, its kinds, its runners."""

import asyncio
from collections.abc import Callable
from datetime import timedelta

import structlog

import paddock
from paddock import garbage, tracing
from paddock.capability import each
from paddock.config import Config
from paddock.jobs.kinds import Kinds
from paddock.known_kinds import worker_kinds
from paddock.worker.health import serve_health
from paddock.worker.link import HttpLink
from paddock.worker.processes import ProcessRunners, RunnerOptions
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker

log = structlog.get_logger()

CHORES_SECONDS = 3600.0


class WorkError(Exception):
    """A sentence for the person who started it."""

    code = "worker"


async def work(config: Config, *, once: bool = False, wait: timedelta | None = None) -> int:
    """Runs until SIGTERM or SIGINT, or with `once` one job to its end, waiting for it `wait` at most. Returns the exit
    code."""
    if config.server is None:
        raise WorkError(
            "This worker does not know its control plane: name it with --server URL or PADDOCK_SERVER, or start one "
            "on this machine with `paddock up`."
        )
    for _, check_settings in each("check_settings"):
        check_settings(config)
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
    chores = asyncio.create_task(do_chores(config))
    try:
        if once:
            return await supervisor.run_once(wait=wait, signals=True)
        async with serve_health(supervisor, config.worker_port):
            return await supervisor.run(signals=True)
    except OSError as problem:
        raise WorkError(
            f"Port {config.worker_port} cannot be used for /health and /metrics: {problem.strerror}. Set "
            "PADDOCK_WORKER_PORT to another one; 0 takes any."
        ) from problem
    finally:
        chores.cancel()
        tracing.shutdown()


async def do_chores(config: Config) -> None:
    """What capabilities do on a worker's machine, at its start and now and then. One that fails is tried again."""
    assert config.server is not None
    chores = list(each("worker_chore"))
    while chores:
        link = HttpLink(config.server, token_of(config))
        try:
            for capability, chore in chores:
                try:
                    await chore(config, link)
                except Exception:
                    log.exception("worker_chore_failed", capability=capability.name)
        finally:
            await link.close()
        await asyncio.sleep(CHORES_SECONDS)


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


def chosen_kinds(config: Config) -> Kinds:
    known = worker_kinds(config)
    if config.worker_kinds is None:
        missing = {name for _, unreachable in each("unreachable_kinds") for name in unreachable(config)}
        return Kinds(kind for kind in known if kind.name not in missing)
    for name in config.worker_kinds:
        if name not in known:
            raise WorkError(f"This worker has no kind '{name}'; it has {', '.join(kind.name for kind in known)}.")
    return Kinds(known[name] for name in config.worker_kinds)
