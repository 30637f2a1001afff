"""`paddock up`, `paddock serve`, `paddock worker`: the processes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from paddock.cli.errors import FAILED, USAGE, CommandFailed, wrong_usage
from paddock.cli.wording import duration

if TYPE_CHECKING:
    from paddock.config import Config
    from paddock.up import Running


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
        Data folder; default: ./paddock-data.
    port:
        Port to listen on; default: 8080 or the next free one.
    worker:
        Run a worker too.
    pg_bin:
        Folder of PostgreSQL's programs, instead of the embedded ones.
    """
    import uvloop

    from paddock.config import load
    from paddock.up import up as run_up

    config = load(overrides={"data": data, "port": port})
    with _refusals_as_sentences():
        uvloop.run(run_up(config, with_worker=worker, pg_bin=pg_bin, announce=_announce))
    return 0


@contextmanager
def _refusals_as_sentences() -> Iterator[None]:
    """What has a code is a sentence for the person who starts it, with what to do where there is a hint. Anything else is a
    defect of ours and stays one."""
    try:
        yield
    except Exception as problem:
        if not isinstance(getattr(problem, "code", None), str):
            raise
        from paddock.config import ConfigError

        exit_code = USAGE if isinstance(problem, ConfigError) else FAILED
        raise CommandFailed(str(problem), hint=getattr(problem, "hint", None), exit_code=exit_code) from None


def _announce(running: "Running") -> None:
    write = sys.stdout.write
    write(f"\nPaddock answers at {running.url} after {running.seconds:.1f} s.\n")
    if running.sign_in:
        link = f"`paddock tokens link{_data(running)}`"
        if sys.stdout.isatty():
            write(f"  Dashboard   {running.sign_in}\n")
            write(f"              (works once, within five minutes; {link} makes another)\n")
        else:  # A file or a log keeps what it is given, and others may read it.
            write(f"  Dashboard   {running.url} ({link} makes a link that signs you in)\n")
    write(f"  Token       {running.data / 'admin.token'}\n")
    write(
        f'  Try         paddock jobs submit probe \'{{"sleep_seconds": 5, "progress": 10}}\' --wait{_data(running)}\n'
    )
    write("  Ctrl-C stops all of it; the data stays.\n\n")
    sys.stdout.flush()


def _data(running: "Running") -> str:
    return "" if running.data == Path.cwd() / "paddock-data" else f" --data {running.data}"


def serve(*, port: int | None = None, host: str | None = None) -> int:
    """Run the control plane on your PostgreSQL (PADDOCK_DATABASE_URL). Any number of them may share one database.

    Parameters
    ----------
    port:
        Port to listen on; default: 8080.
    host:
        Address to listen on; default: all of them.
    """
    config = _load({"port": port, "host": host})
    import uvloop

    from paddock.serve import serve as run_serve

    with _refusals_as_sentences():
        uvloop.run(run_serve(config))
    return 0


def worker(
    *,
    server: str | None = None,
    token_file: Path | None = None,
    kinds: Annotated[list[str] | None, Parameter(negative=(), consume_multiple=True)] = None,
    concurrency: int | None = None,
    once: Annotated[bool, Parameter(negative=())] = False,
    wait: str | None = None,
    id: str | None = None,
) -> int:
    """Run a worker: it claims jobs over HTTP, needs no database credentials and keeps nothing.

    Parameters
    ----------
    server:
        Address of the control plane; default: PADDOCK_SERVER or the running `paddock up`.
    token_file:
        File that holds a token of role worker.
    kinds:
        Only these kinds.
    concurrency:
        How many jobs at once.
    once:
        Run one job to its end, with its cleanup and follow-ups, then exit: 0 if it completed, else 1.
    wait:
        With --once: exit 0 if no job came within this time, like 60s; default: wait forever.
    id:
        Its name; default: HOSTNAME.
    """
    asked = {
        "server": server,
        "token_file": token_file,
        "worker_kinds": [name for word in kinds for name in word.split(",")] if kinds else None,
        "concurrency": concurrency,
        "worker_id": id,
    }
    if wait is not None and not once:
        raise wrong_usage("--wait goes with --once.")
    try:
        longest = None if wait is None else duration(wait)
    except ValueError as problem:
        raise wrong_usage(str(problem)) from None
    config = _load(asked)
    if config.server is None:
        config = _load({**asked, **_local_server(config)})
    import uvloop

    from paddock.work import WorkError, work

    try:
        return int(uvloop.run(work(config, once=once, wait=longest)))
    except WorkError as problem:
        raise CommandFailed(str(problem)) from None


def _local_server(config: "Config") -> dict[str, Any]:
    """The running `paddock up` of this folder, and the token it keeps for its workers."""
    from paddock.client.finding import read_address

    url = read_address(config.data)
    own = config.data / "worker.token"
    if url is None or config.token is not None or config.token_file is not None or not own.exists():
        return {"server": url}
    return {"server": url, "token_file": own}


def _load(overrides: dict[str, Any]) -> "Config":
    from paddock import log
    from paddock.config import load

    config = load(overrides=overrides)
    log.configure(config.log_level, config.log_format)
    return config


def instance(told: str | None = None, /) -> int:
    """Run one graph database. Runtimes start it and tell it what it is; people use `paddock instances`.

    Parameters
    ----------
    told
        One JSON object; without it, the first line of standard input.
    """
    from paddock.graphs.serving import run

    return run(told)
