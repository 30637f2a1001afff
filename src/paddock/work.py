"""The worker process, put together: the line to its control plane, its kinds, its runners."""

from collections.abc import Callable

import paddock
from paddock import garbage, tracing
from paddock.config import Config
from paddock.jobs.kinds import Kinds
from paddock.known_kinds import worker_kinds
from paddock.worker.health import serve_health
from paddock.worker.link import HttpLink
from paddock.worker.processes import ProcessRunners, RunnerOptions
from paddock.worker.settings import Settings
from paddock.worker.supervisor import Worker


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
                log_level=config.log_level,
                otel_endpoint=config.otel_endpoint,
            )
        ),
        settings=Settings.from_config(config),
        version=paddock.__version__,
    )
    tracing.configure(config.otel_endpoint, "paddock-worker")
    garbage.settle()
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
        tracing.shutdown()


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
    known = worker_kinds()
    if config.worker_kinds is None:
        return known
    for name in config.worker_kinds:
        if name not in known:
            raise WorkError(f"This worker has no kind '{name}'; it has {', '.join(kind.name for kind in known)}.")
    return Kinds(known[name] for name in config.worker_kinds)
