"""`paddock up`, `paddock serve`, `paddock worker`: the processes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from paddock.cli.errors import CommandFailed, wrong_usage

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.up import Running

# Given by `paddock up` to the processes it starts.
DiesWith = Annotated[int | None, Parameter(show=False)]


def up(
    *,
    data: Path | None = None,
    port: int | None = None,
    worker: bool = True,
    pg_bin: Path | None = None,
) -> int:
    """Run everything on this machine: PostgreSQL, control plane, worker, object store. Ctrl-C stops all of it.

    Parameters
    ----------
    data:
        Data folder; ./paddock-data unless told.
    port:
        Port to listen on; 8080 or the next free one unless told.
    worker:
        Run a worker too.
    pg_bin:
        Folder of PostgreSQL's programs, instead of the embedded ones.
    """
    config = _load({"data": data, "port": port})
    import uvloop

    from paddock.db.embedded import EmbeddedPostgresError
    from paddock.db.migrate import MigrationError
    from paddock.up import UpError
    from paddock.up import up as run_up

    try:
        uvloop.run(run_up(config, with_worker=worker, pg_bin=pg_bin, announce=_announce))
    except (UpError, EmbeddedPostgresError, MigrationError) as problem:
        raise CommandFailed(str(problem)) from None
    return 0


def _announce(running: "Running") -> None:
    write = sys.stdout.write
    write(f"\nPaddock answers at {running.url} after {running.seconds:.1f} s.\n")
    if running.sign_in:
        write(f"  Dashboard   {running.sign_in}\n")
        write(f"              (works once, within five minutes; `paddock tokens link{_data(running)}` makes another)\n")
    write(f"  Token       {running.data / 'admin.token'}\n")
    write(
        f'  Try         paddock jobs submit probe \'{{"sleep_seconds": 5, "progress": 10}}\' --wait{_data(running)}\n'
    )
    write("  Ctrl-C stops all of it; the data stays.\n\n")
    sys.stdout.flush()


def _data(running: "Running") -> str:
    return "" if running.data == Path.cwd() / "paddock-data" else f" --data {running.data}"


def serve(*, port: int | None = None, host: str | None = None, dies_with: DiesWith = None) -> int:
    """Run the control plane on your PostgreSQL (PADDOCK_DATABASE_URL). Any number of them may share one database.

    Parameters
    ----------
    port:
        Port to listen on; 8080 unless told.
    host:
        Address to listen on; all of them unless told.
    """
    _die_with(dies_with)
    config = _load({"port": port, "host": host})
    import uvloop

    from paddock.db.migrate import MigrationError
    from paddock.serve import ServeError
    from paddock.serve import serve as run_serve

    try:
        uvloop.run(run_serve(config))
    except (ServeError, MigrationError) as problem:
        raise CommandFailed(str(problem)) from None
    return 0


def worker(
    *,
    server: str | None = None,
    token_file: Path | None = None,
    kinds: Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)] = None,
    concurrency: int | None = None,
    once: Annotated[bool, Parameter(negative=())] = False,
    id: str | None = None,
    dies_with: DiesWith = None,
) -> int:
    """Run a worker: it claims jobs over HTTP, needs no database credentials and keeps nothing.

    Parameters
    ----------
    server:
        Address of the control plane; PADDOCK_SERVER or the running `paddock up` unless told.
    token_file:
        File that holds a token of role worker.
    kinds:
        Only these kinds.
    concurrency:
        How many jobs at once.
    once:
        Run one job to its end, with its cleanup and follow-ups, then exit: 0 if it completed, else 1.
    id:
        How it calls itself; HOSTNAME unless told.
    """
    _die_with(dies_with)
    config = _load(
        {
            "server": server,
            "token_file": token_file,
            "worker_kinds": [name for word in kinds for name in word.split(",")] if kinds else None,
            "concurrency": concurrency,
            "worker_id": id,
        }
    )
    import uvloop

    return int(uvloop.run(_work(config, once)))


async def _work(config: "Config", once: bool) -> int:
    import paddock
    from paddock import tracing
    from paddock.worker.health import serve_health
    from paddock.worker.link import HttpLink
    from paddock.worker.processes import ProcessRunners, RunnerOptions
    from paddock.worker.settings import Settings
    from paddock.worker.supervisor import Worker

    tracing.configure(config.otel_endpoint, "paddock-worker")
    url, token = _server_and_token(config)
    supervisor = Worker(
        link=HttpLink(url, token),
        kinds=_chosen_kinds(config),
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
    if once:
        return await supervisor.run_once(signals=True)
    try:
        async with serve_health(supervisor, config.worker_port):
            return await supervisor.run(signals=True)
    except OSError as problem:
        raise CommandFailed(
            f"Port {config.worker_port} cannot be used for /health and /metrics: {problem.strerror}.",
            hint="Set PADDOCK_WORKER_PORT to another one; 0 takes any.",
        ) from None
    finally:
        tracing.shutdown()


def _server_and_token(config: "Config") -> tuple[str, Any]:
    """The address, and a function that reads the token anew: a mounted secret changes while we run."""
    from paddock.cli.connection import START_ONE, read_address

    url = config.server or read_address(config.data)
    if url is None:
        raise CommandFailed("This worker does not know its control plane.", hint=START_ONE)
    own = config.data / "worker.token"
    local = config.server is None and config.token is None and config.token_file is None and own.exists()

    def token() -> str:
        secret = config.bearer_token()
        if secret is not None:
            return secret.get_secret_value()
        return own.read_text("utf-8").strip()

    if not local and config.bearer_token() is None:
        raise CommandFailed(
            "This worker has no token.",
            hint="Set PADDOCK_TOKEN or PADDOCK_TOKEN_FILE; `paddock tokens create --role worker --name NAME` makes one.",
        )
    return url, token


def _chosen_kinds(config: "Config") -> Any:
    from paddock.jobs.kinds import Kinds
    from paddock.known_kinds import worker_kinds

    known = worker_kinds()
    if config.worker_kinds is None:
        return known
    unknown = [name for name in config.worker_kinds if name not in known]
    if unknown:
        raise wrong_usage(
            f"This worker has no kind '{unknown[0]}'.", f"It has {', '.join(kind.name for kind in known)}."
        )
    return Kinds(known[name] for name in config.worker_kinds)


def _die_with(parent: int | None) -> None:
    if parent is not None:
        from paddock.dying import die_with

        die_with(parent)


def _load(overrides: dict[str, Any]) -> "Config":
    from paddock import log
    from paddock.config import load

    config = load(overrides=overrides)
    log.configure(config.log_level, config.log_format)
    return config
