"""`paddock export`: SQL to files, from the question to the file on your disk."""

import json
import shlex
import sys
import time
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from paddock.amounts import several, size, span
from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.downloading import Wanted, fetch, wanted
from paddock.cli.endings import EXPORTS, agreed
from paddock.cli.errors import FAILED, wrong_usage
from paddock.cli.jobs.watching import follow
from paddock.cli.output import Item, Output, dump

# A single file was asked for: none is begun after it.
ONE_FILE = 4 << 30

Repeated = Annotated[list[str] | None, Parameter(negative=())]
Engine = Annotated[str | None, Parameter(name=["--engine", "-e"])]
Role = Annotated[str | None, Parameter(help="The engine role to work under (X-Use-Case-Id).")]


def export(
    sql: str | None = None,
    /,
    *,
    to: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    name: str | None = None,
    file: Annotated[Path | None, Parameter(name=["--file", "-f"], allow_leading_hyphen=True)] = None,
    table: str | None = None,
    catalog: str | None = None,
    schema: str | None = None,
    engine: Engine = None,
    role: Role = None,
    param: Repeated = None,
    format: str | None = None,
    option: Repeated = None,
    partition_by: Repeated = None,
    max_rows: int | None = None,
    max_bytes: int | None = None,
    ttl: str | None = None,
    mode: Literal["direct", "unload"] | None = None,
    destination: str | None = None,
    replace: Annotated[bool, Parameter(negative=())] = False,
    force: Annotated[bool, Parameter(negative=())] = False,
    wait: bool = True,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Export a query to Parquet, CSV or JSON Lines, and with --to download it.

    Parameters
    ----------
    sql:
        The query: one SELECT, in the engine's dialect.
    to:
        Where the files go when they are done: a folder, a file (its ending names the format), or - for standard output.
    name:
        What you call it: it is found by that, and downloads in a browser carry it.
    file:
        Read the query from this file; - is standard input.
    table:
        A whole table instead of a query, with --catalog and --schema where the engine has them.
    catalog:
        Catalog of the query's unqualified names.
    schema:
        Schema of the query's unqualified names.
    engine:
        Which engine; `paddock engines list` names them.
    param:
        A value the query names, as name=value; repeat the option for several.
    format:
        parquet, csv or jsonl.
    option:
        An option of the format, as name=value: compression=gzip, header=false, delimiter=;.
    partition_by:
        A column that becomes folders; repeat the option for several.
    max_rows:
        Stop after this many rows.
    max_bytes:
        Fail when the files grow larger.
    ttl:
        How long the server keeps the files: 7d, PT12H, or never.
    mode:
        Who writes the files: the worker (direct), or the engine where it can (unload).
    destination:
        A place the server knows, as name:prefix; {date} and the like are filled in.
    replace:
        Replace what an earlier export left at the destination.
    force:
        Replace the file at --to, or in a folder the files of an earlier export; anything else in it is refused.
    wait:
        Follow it to its end (default); --no-wait only submits it.
    """
    target = None if to is None else wanted(to, force=force)
    body = _body(
        sql=_query(sql, file, table),
        name=name,
        table=table,
        catalog=catalog,
        schema=schema,
        engine=engine,
        parameters=pairs(param, "--param"),
        max_rows=max_rows,
        max_bytes=max_bytes,
        mode=mode,
        destination=destination,
        if_exists="replace" if replace else None,
        **_form(format, target, option, partition_by),
    )
    if ttl is not None:
        body["ttl"] = None if ttl == "never" else ttl
    server = open_server(connect)
    began = time.monotonic()
    made = server.make_work("/api/exports", body, role=role)
    if not wait and target is None:
        return _tell(made, output)
    try:
        return _finish(server, made, target, output, began)
    except KeyboardInterrupt:
        sys.stderr.write(
            f"\nInterrupted here; export {made['id']} goes on at the server.\n"
            f"  paddock exports watch {made['id']}   follows it\n"
            f"  paddock exports download {made['id']} --to {shlex.quote(to or 'FOLDER')}   fetches it when it is done\n"
            f"  paddock exports cancel {made['id']}   stops it\n"
        )
        return 130


def _finish(server: Server, made: Item, target: Wanted | None, output: str, began: float) -> int:
    quiet = output != "table" or (target is not None and target.to_stdout)
    [job] = _watched(server, str(made["job_id"]), quiet=quiet)
    found = server.get(f"/api/exports/{made['id']}")
    if job["status"] != "completed":
        if quiet:
            sys.stderr.write(f"{job['status']}: {job.get('error_message')} [{job.get('error_code')}]\n")
        return FAILED
    if target is not None:
        fetch(server, found, target)
    if output != "table":
        return _tell(found, output)
    if target is None or not target.to_stdout:
        where = str(target.path) if target is not None else str(found["id"])
        seconds = time.monotonic() - began
        sys.stdout.write(f"{where}   {several(found['rows'], 'row')}   {size(found['bytes'])}   {span(seconds)}\n")
    if target is None and not found["request"].get("destination"):
        sys.stderr.write(f"Download it with: paddock exports download {found['id']} --to FOLDER\n")
    return 0


def _watched(server: Server, job: str, *, quiet: bool) -> list[Item]:
    if quiet:
        from paddock.cli.jobs.streaming import watch

        return list(watch(server, [job], lambda _: None))
    return follow(server, [job], "table")


def _tell(found: Item, output: str) -> int:
    if output == "name" or output == "table":
        sys.stdout.write(f"{found['id']}\n")
    else:
        dump(found, "yaml" if output == "yaml" else "json")
    return 0


def _query(sql: str | None, file: Path | None, table: str | None) -> str | None:
    given = [source for source in (sql, file, table) if source is not None]
    if len(given) != 1 or not str(given[0]).strip():
        raise wrong_usage(
            "Say what to export: a query, --file or --table, one of them.",
            'For example: paddock export "SELECT 42 AS answer" --to answer.parquet',
        )
    return sql if file is None else text_of(file)


def text_of(file: Path) -> str:
    """What somebody wrote into a file; - is standard input."""
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as problem:
        raise wrong_usage(f"{file} cannot be read: {problem}.") from None


def _form(format: str | None, target: Wanted | None, option: list[str] | None, by: list[str] | None) -> dict[str, Any]:
    """What the ending of --to says; an option that says otherwise is refused."""
    options = pairs(option, "--option")
    if by:
        options["partition_by"] = by
    if target is not None and target.single:
        if target.ending is not None:
            format = agreed(target.path, target.ending.format, "--format", format)
            if format not in EXPORTS.closed:
                compression = target.ending.compression or "none"
                options["compression"] = agreed(
                    target.path, compression, "--option compression", options.get("compression")
                )
        if by:
            raise wrong_usage("Partitions are folders: give --to a folder, not a file.")
        options.setdefault("file_bytes", ONE_FILE)
    return {"format": format, "options": options or None}


def pairs(pairs: list[str] | None, option: str) -> dict[str, Any]:
    """`n=3` is a number, `n="3"` and `n=three` are text."""
    found: dict[str, Any] = {}
    for pair in pairs or []:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise wrong_usage(f"{option} takes name=value, not {pair!r}.")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _body(**given: Any) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None and value != {}}
