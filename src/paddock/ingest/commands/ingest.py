"""`paddock ingest`: records from a source, through hooks, into Parquet."""

import json
import os
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from paddock.cli import replacing
from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import FAILED, CommandFailed, wrong_usage
from paddock.cli.output import WATCH_SECONDS, Form, Item, Output, Watch, is_terminal, show, show_one
from paddock.ingest.commands.ingest_files import fetch_file
from paddock.ingest.commands.ingest_words import (
    BATCHES,
    FILES,
    LIVE,
    REJECTED,
    RUNS,
    SOURCES,
    one_line,
    run_sheet,
)
from paddock.ingest.views import view_of

app = App(name="ingest", help="Records from a source, through hooks, into Parquet.")

Wait = Annotated[
    bool, Parameter(name=["--wait", "--watch", "-w"], negative=(), help="Until it has ended; exit 1 if it failed.")
]
Reason = Annotated[str | None, Parameter(help="For whoever looks at it later.")]


@app.command
def sources(*, output: Output = "table", connect: Connect = HERE) -> int:
    """List the sources that you may use, with their last run."""
    found = open_server(connect).get("/api/ingest/sources")
    show(found, SOURCES, output, name="name", none="No sources. Add [ingest.sources.NAME] to paddock.toml.")
    return 0


@app.command
def run(
    source: str,
    /,
    *,
    start_from: Annotated[Literal["last", "start", "session"], Parameter(name="--from")] = "last",
    session: str | None = None,
    limit: int | None = None,
    batch_size: int | None = None,
    wait: Wait = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Start a run of a source.

    Parameters
    ----------
    source:
        Its name.
    start_from:
        last: after what is published. start: from the beginning. session: at --session.
    session:
        With --from session: where to begin, as JSON.
    limit:
        So many records at most.
    batch_size:
        Records in a batch; default: the source's.
    """
    if (session is not None) != (start_from == "session"):
        raise wrong_usage("--session and --from session belong together.")
    server = open_server(connect)
    asked: dict[str, Any] = {"source": source, "from": start_from, "limit": limit, "batch_size": batch_size}
    body = {name: value for name, value in asked.items() if value is not None}
    if session is not None:
        body["session"] = _json_of(session)
    return _show_run(server, server.make_work("/api/ingest/runs", body), wait, output)


@app.command(name="runs")
def list_runs(
    *,
    q: str | None = None,
    source: str | None = None,
    status: str | None = None,
    owner: str | None = None,
    limit: int = 20,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List runs, newest first.

    Parameters
    ----------
    q:
        A part of the source's name or of the error.
    source:
        Only of this source.
    status:
        Only these: running, finishing, stopping, completed, failed, cancelled; several with commas.
    owner:
        Only theirs.
    limit:
        How many at most.
    """
    found = open_server(connect).pages("/api/ingest/runs", limit, source=source, status=status, owner=owner, q=q)
    show(found, RUNS, output, none="No runs.")
    return 0


@app.command(name="show")
def show_run(run: str, /, *, watch: Watch = False, output: Output = "table", connect: Connect = HERE) -> int:
    """Show a run; with --watch until it has ended, and then exit 1 if it or a batch of it failed.

    Parameters
    ----------
    run:
        Its id, or the name of a source: then its last run.
    """
    server = open_server(connect)
    return _show_run(server, server.get(f"/api/ingest/runs/{_run_id(server, run)}"), watch, output)


@app.command
def cancel(run: str, /, *, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Cancel what is left of a run; what was published stays.

    Parameters
    ----------
    run:
        Its id, or the name of a source: then its last run.
    """
    server = open_server(connect)
    found = server.post(f"/api/ingest/runs/{_run_id(server, run)}/cancel", {"reason": reason})
    show_one(found, output, person=lambda one: f"The run of {one['source']} is {one['status']}.")
    return 0


@app.command
def delete(run: str, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Delete an ended run and the files that it published. Where its source goes on is kept.

    Parameters
    ----------
    run:
        Its id.
    """
    gone = open_server(connect).delete(f"/api/ingest/runs/{run}")
    show_one(gone, output, person=lambda one: f"The run {one['id']} is being deleted.")
    return 0


@app.command
def batches(
    run: str, /, *, status: str | None = None, limit: int = 100, output: Output = "table", connect: Connect = HERE
) -> int:
    """List the batches of a run.

    Parameters
    ----------
    run:
        Its id, or the name of a source: then its last run.
    status:
        Only these: fetched, hooked, published, failed, cancelled, skipped; several with commas.
    limit:
        How many at most.
    """
    server = open_server(connect)
    found = server.pages(f"/api/ingest/runs/{_run_id(server, run)}/batches", limit, status=status)
    show(found, BATCHES, output, name="n", none="No batches.")
    return 0


@app.command
def retry(run: str, batch: int, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Send a failed batch through its hooks again.

    Parameters
    ----------
    run:
        Its id, or the name of a source: then its last run.
    batch:
        The number of the batch.
    """
    server = open_server(connect)
    found = server.post(f"/api/ingest/runs/{_run_id(server, run)}/batches/{batch}/retry")
    show_one(found, output, name="n", person=lambda one: f"Batch {one['n']} is {one['status']} and goes on.")
    return 0


@app.command
def skip(run: str, batch: int, /, *, reason: Reason = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Give a failed batch up: the next run does not fetch it again.

    Parameters
    ----------
    run:
        Its id, or the name of a source: then its last run.
    batch:
        The number of the batch.
    """
    server = open_server(connect)
    found = server.post(f"/api/ingest/runs/{_run_id(server, run)}/batches/{batch}/skip", {"reason": reason})
    show_one(found, output, name="n", person=lambda one: f"Batch {one['n']} is {one['status']}.")
    return 0


@app.command
def rejected(run: str, batch: int, /, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Show the first records of a batch that were rejected, with why.

    Parameters
    ----------
    run:
        Its id, or the name of a source: then its last run.
    batch:
        The number of the batch.
    """
    server = open_server(connect)
    found = server.get(f"/api/ingest/runs/{_run_id(server, run)}/batches/{batch}/rejected")
    show(found, REJECTED, output, none="No record of this batch was rejected.")
    return 0


@app.command
def files(
    source: str, /, *, after: str | None = None, limit: int = 100, output: Output = "table", connect: Connect = HERE
) -> int:
    """List the published files of a source, in their order.

    Parameters
    ----------
    source:
        Its name.
    after:
        Only those published after this file.
    limit:
        How many at most.
    """
    found = open_server(connect).pages(f"/api/ingest/sources/{source}/files", limit, after=after)
    show(found, FILES, output, none="Nothing is published yet.")
    return 0


@app.command
def download(
    file: str,
    /,
    *,
    to: Path,
    rejected: Annotated[bool, Parameter(negative=())] = False,
    force: Annotated[bool, Parameter(negative=())] = False,
    connect: Connect = HERE,
) -> int:
    """Download a published file.

    Parameters
    ----------
    file:
        Its id, as `paddock ingest files` lists it.
    to:
        A file that ends in .parquet.
    rejected:
        The rejected records of its batch instead.
    force:
        Replace the file.
    """
    if to.suffix != ".parquet":
        raise wrong_usage(f"--to {to} must end in .parquet: that is what the file is.")
    replacing.check_file(to, force=force)
    fetch_file(open_server(connect), file, to, "rejected" if rejected else "records", force=force)
    sys.stdout.write(f"{to}\n")
    return 0


@app.command
def sql(
    source: str,
    /,
    *,
    every_version: Annotated[bool, Parameter(name="--all", negative=())] = False,
    connect: Connect = HERE,
) -> int:
    """Print a view for DuckDB over exactly the published files: one current row for each record.

    Parameters
    ----------
    source:
        Its name.
    every_version:
        Every version of each record.
    """
    found = open_server(connect).pages(f"/api/ingest/sources/{source}/files", None)
    paths = [str(file["path"]) for file in found]
    if not paths:
        raise CommandFailed(f"Nothing of '{source}' is published yet.", hint=f"paddock ingest run {source} --wait")
    sys.stdout.write(view_of(source, paths, every_version=every_version))
    return 0


@app.command(name="try")
def try_source(source: str, /, *, hook: str | None = None, limit: int = 10, connect: Connect = HERE) -> int:
    """Run the commands of a source here, without a server, and show what they gave.

    Parameters
    ----------
    source:
        Its name in paddock.toml.
    hook:
        Only up to this hook.
    limit:
        So many records at most.
    """
    from paddock.ingest.trying import try_here

    return try_here(source, hook, limit)


@app.command(show=False)
def transfer(what: Literal["fetch", "ship"], /) -> int:
    """What runs beside a step's container in its pod.

    Parameters
    ----------
    what:
        fetch: before it. ship: after it.
    """
    from paddock.ingest.transferring import main

    return main(what, os.environ)


def _json_of(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise wrong_usage("--session must be JSON, like '{\"after\": 100}'.") from None


def _run_id(server: Server, text: str) -> str:
    """An id, or the last run of the source of this name."""
    if len(text) == 36 and text.count("-") == 4:
        return text
    last = server.get(f"/api/ingest/sources/{text}")["last_run"]
    if last is None:
        raise CommandFailed(f"The source '{text}' never ran.", hint=f"paddock ingest run {text}")
    return str(last["id"])


def _show_run(server: Server, run: Item, wait: bool, output: Form) -> int:
    if wait:
        run = _until_ended(server, run, told=output == "table")
    show_one(run, output, person=run_sheet)
    failed = run["status"] in ("failed", "cancelled") or run["failed_batches"]
    return FAILED if wait and failed else 0


def _until_ended(server: Server, run: Item, *, told: bool) -> Item:
    """Only a person is shown the way there: one line that changes on a terminal, a line for each change in a pipe."""
    before = ""
    while True:
        line = one_line(run)
        if told and line != before:
            sys.stdout.write(f"\r\033[K{line}" if is_terminal() else f"{line}\n")
            sys.stdout.flush()
            before = line
        if run["status"] not in LIVE:
            if told and is_terminal():
                sys.stdout.write("\n")
            return run
        time.sleep(WATCH_SECONDS / 4)
        run = server.get(f"/api/ingest/runs/{run['id']}")
