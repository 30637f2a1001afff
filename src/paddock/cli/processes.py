"""`paddock up`, `paddock serve`, `paddock worker`: the processes."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from paddock.cli.errors import CommandFailed

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
        Data folder; ./paddock-data unless told.
    port:
        Port to listen on; 8080 or the next free one unless told.
    worker:
        Run a worker too.
    pg_bin:
        Folder of PostgreSQL's programs, instead of the embedded ones.
    """
    import uvloop

    from paddock.config import load
    from paddock.up import up as run_up

    config = load(overrides={"data": data, "port": port})
    try:
        uvloop.run(run_up(config, with_worker=worker, pg_bin=pg_bin, announce=_announce))
    except Exception as problem:
        if not isinstance(getattr(problem, "code", None), str):
            raise
        raise CommandFailed(str(problem)) from None  # what has a code is a sentence for a person
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


def serve(*, port: int | None = None, host: str | None = None) -> int:
    """Run the control plane on your PostgreSQL (PADDOCK_DATABASE_URL). Any number of them may share one database.

    Parameters
    ----------
    port:
        Port to listen on; 8080 unless told.
    host:
        Address to listen on; all of them unless told.
    """
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
    asked = {
        "server": server,
        "token_file": token_file,
        "worker_kinds": [name for word in kinds for name in word.split(",")] if kinds else None,
        "concurrency": concurrency,
        "worker_id": id,
    }
    config = _load(asked)
    if config.server is None:
        config = _load({**asked, **_local_server(config)})
    import uvloop

    from paddock.work import WorkError, work

    try:
        return int(uvloop.run(work(config, once=once)))
    except WorkError as problem:
        raise CommandFailed(str(problem)) from None


def _local_server(config: "Config") -> dict[str, Any]:
    """The running `paddock up` of this folder, and the token it keeps for its workers."""
    from paddock.cli.connection import read_address

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
