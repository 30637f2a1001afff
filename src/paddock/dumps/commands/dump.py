"""`paddock dump`: a whole database as one file, from the question to the file on your disk; and a look at such a file."""

import shlex
import sys
import time
import uuid
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import App, Parameter

from paddock.amounts import several, size, span
from paddock.cli.connection import HERE, Connect, Refusal, Server, open_server
from paddock.cli.endings import DUMPS, agreed
from paddock.cli.errors import FAILED, CommandFailed, wrong_usage
from paddock.cli.jobs.streaming import patiently
from paddock.cli.output import Form, Item, Output
from paddock.cli.output import dump as write_out
from paddock.dumps.commands import dump_files, dump_progress
from paddock.dumps.commands.dump_files import Target

FORMS: dict[str, Form] = {"table": "table", "json": "json", "yaml": "yaml", "name": "name"}

Repeated = Annotated[list[str] | None, Parameter(negative=())]
Flag = Annotated[bool, Parameter(negative=())]

app = App(name="dump")


@app.default
def dump(
    database: str,
    /,
    *,
    table: Repeated = None,
    exclude_table: Repeated = None,
    format: Literal["sql", "json", "csv", "sqlite", "custom"] | None = None,
    compress: Literal["zstd", "gzip"] | None = None,
    schema_only: Flag = False,
    data_only: Flag = False,
    no_owner: Annotated[bool, Parameter(name="--no-owner", negative=())] = False,
    preserve_rowids: Flag = False,
    csv_safe: Flag = False,
    output: Annotated[
        list[str] | None, Parameter(name=["--output", "-o"], negative=(), allow_leading_hyphen=True)
    ] = None,
    force: Flag = False,
    wait: bool = True,
    connect: Connect = HERE,
) -> int:
    """Dump a database to one file, from one point in time, while it stays in use; with -o FILE download it.

    `paddock dump verify FILE` checks such a file.

    Parameters
    ----------
    database:
        As the server's configuration names it.
    table:
        Only this table; repeat the option for several.
    exclude_table:
        Leave this table out; repeat the option for several.
    format:
        sql unless the ending of FILE names another; sqlite is the database file itself, custom is pg_dump's own.
    compress:
        Compress the file; the ending of FILE says so too (.zst, .gz).
    schema_only:
        No rows.
    data_only:
        Only rows.
    no_owner:
        PostgreSQL: leave out who owns what.
    preserve_rowids:
        SQLite: also keep rowids that are not a key.
    csv_safe:
        CSV: put ' before what a spreadsheet would run.
    output:
        FILE, a folder, or - for standard output; or table, json, yaml, name: the form of the answer. Both may be given.
    force:
        Write over FILE.
    wait:
        Follow it to its end (default); --no-wait only starts it.
    """
    form, to = _outputs(output)
    if to is not None and not wait:
        raise wrong_usage("With --no-wait there is nothing to write yet: leave -o FILE out, and download it later.")
    wanted = None if to is None else dump_files.target(to, force=force)
    body = {
        "async": True,
        "database": database,
        **_form(format, compress, wanted, len(table or [])),
        **_tables(table, exclude_table),
        "schemaOnly": schema_only,
        "dataOnly": data_only,
        "noOwner": no_owner,
        "preserveRowids": preserve_rowids,
        "csvSafe": csv_safe,
    }
    server = open_server(connect)
    began = time.monotonic()
    answer = server.answer(
        "POST",
        "/export/dump",
        body={name: value for name, value in body.items() if value or name == "database"},
        idempotency_key=str(uuid.uuid4()),
    )
    made = answer["result"]
    if not wait:
        return _answer(made, form)
    return finish(server, str(made["jobId"]), wanted, form, began)


@app.command
def verify(
    file: Path,
    /,
    *,
    trusted: Flag = False,
    pg_bin: Path | None = None,
    expected: Annotated[Path | None, Parameter(name=["--expected", "--told"])] = None,
    output: Output = "table",
) -> int:
    """Check a dump: its sums, that it loads into a scratch database, and the rows of each table.

    Parameters
    ----------
    file:
        A dump of any format, compressed or not.
    trusted:
        PostgreSQL: load it as superuser of the scratch server, which extensions and the like may need. The file can
        then run any program as you.
    pg_bin:
        Folder of PostgreSQL's programs, instead of the embedded ones.
    expected:
        A file with what `paddock dumps show ID -o json` prints: a dump without row counts or a digest in it is compared
        with that.
    """
    from paddock.dumps.commands.dump_verify import verify_file

    return verify_file(file, trusted=trusted, pg_bin=pg_bin, told=expected, form=output)


def finish(server: Server, id: str, wanted: Target | None, form: Form, began: float | None = None) -> int:
    """Follows a dump to its end, and downloads it if that was asked for."""
    try:
        return _finish(server, id, wanted, form, began)
    except KeyboardInterrupt:
        place = "" if wanted is None or wanted.to_stdout else f" -o {shlex.quote(str(wanted.path))}"
        sys.stderr.write(
            f"\nInterrupted here; {id} goes on at the server.\n"
            f"  paddock dumps download {id}{place}   downloads it when it is done\n"
            f"  paddock dumps cancel {id}   stops it\n"
        )
        return 130


def _finish(server: Server, id: str, wanted: Target | None, form: Form, began: float | None) -> int:
    quiet = form != "table"
    found = status(server, id)
    if found["completedAt"] is None:
        _follow(server, found, quiet=quiet)
        found = status(server, id)
    if found["status"] != "completed":
        return _failed(found, form)
    where = None
    if wanted is not None:
        with dump_progress.downloading(quiet=quiet) as told:
            where = dump_files.fetch(server, found, wanted, told)
    if wanted is None or not wanted.to_stdout:
        _tell(found, None if where is None else str(where), form, began)
    if missing := unreadable_tables(server, found):
        sys.stderr.write(f"It lacks tables whose rows nobody can read: {', '.join(missing)}\n")
    return 0


def unreadable_tables(server: Server, found: Item) -> list[str]:
    """Tables that a JSON or CSV file lacks, as the result of its job names them. The file is there by now: whoever may not
    see that job, or no longer reaches the server, is told nothing."""
    if found["format"] not in ("json", "csv"):
        return []
    try:
        result = server.get(f"/api/jobs/{found['job']}").get("result")
    except CommandFailed:
        return []
    return list((result or {}).get("unreadable") or ())


def _follow(server: Server, found: Item, *, quiet: bool) -> None:
    try:
        dump_progress.follow(server, str(found["job"]), quiet=quiet)
    except Refusal as refusal:
        if refusal.status not in (403, 404):
            raise
        # Somebody else's: its file may be seen, its job may not.
        while patiently(lambda: status(server, str(found["jobId"])))["completedAt"] is None:
            time.sleep(1)


def status(server: Server, id: str) -> Item:
    found: Item = server.answer("GET", f"/export/jobs/{id}", parameters={"v": 2})["result"]
    return found


def _tell(found: Item, where: str | None, form: Form, began: float | None) -> None:
    if form != "table":
        _answer(found, form)
        return
    rows = "rows not counted" if found["rowsWritten"] is None else several(found["rowsWritten"], "row")
    content = f"{rows} in {several(found['totalTables'], 'table')}"
    told = [
        where or str(found["jobId"]),
        content,
        size(found["fileBytes"]),
        f"as of {found['pointInTime']} UTC",
        None if began is None else span(time.monotonic() - began),
    ]
    sys.stdout.write("   ".join(part for part in told if part) + "\n")
    if where is None:
        sys.stderr.write(f"Download it with: paddock dumps download {found['jobId']}\n")
    elif str(found["fileName"]).endswith(".zip") and not where.endswith(".zip"):
        sys.stderr.write("It is a zip of one CSV for each table.\n")


def _failed(found: Item, form: Form) -> int:
    sys.stdout.flush()
    if form != "table":
        _answer(found, form)
    sys.stderr.write(f"{found['jobId']} {found['status']}: {found['errorMessage'] or 'no reason was given'}\n")
    sys.stderr.write(f"`paddock why {found['job']}` tells what to do.\n")
    return FAILED


def _answer(found: Item, form: Form) -> int:
    if form in ("table", "name"):
        sys.stdout.write(f"{found['jobId']}\n")
    else:
        write_out(found, form)
    return 0


def _outputs(given: list[str] | None) -> tuple[Form, str | None]:
    forms = [FORMS[word] for word in given or [] if word in FORMS]
    places = [word for word in given or [] if word not in FORMS]
    if len(forms) > 1 or len(places) > 1:
        raise wrong_usage("-o takes one FILE and one of table, json, yaml and name.")
    if "-" in places and forms:
        raise wrong_usage("With -o - standard output is the dump, and has no room for an answer.")
    return forms[0] if forms else "table", places[0] if places else None


def _tables(named: list[str] | None, without: list[str] | None) -> dict[str, Any]:
    """One alone is an array or a plain file; several are a part of the database."""
    for name in [*(named or []), *(without or [])]:
        if not name.strip():
            raise wrong_usage("A table's name is missing: --table and --exclude-table take one each.")
    found: dict[str, Any] = {"excludeTables": without}
    if named:
        found |= {"table": named[0]} if len(named) == 1 else {"tables": named}
    return found


def _form(format: str | None, compress: str | None, wanted: Target | None, tables: int) -> dict[str, Any]:
    """What the ending of FILE says; an option that says otherwise is refused. `tables`: how many are named."""
    ending = None if wanted is None else wanted.ending
    if wanted is None or ending is None:
        return {"format": format or "sql", "compress": compress}
    if ending.format == "zip" and tables == 1:
        raise wrong_usage(f"One table is a CSV by itself, and {wanted.path.name} says zip.", "Name it .csv.")
    if ending.format == "csv" and tables > 1:
        raise wrong_usage(f"Several tables are a zip of CSVs, and {wanted.path.name} says csv.", "Name it .zip.")
    format = agreed(wanted.path, "csv" if ending.format == "zip" else ending.format, "--format", format)
    if ending.format not in DUMPS.closed:
        agreed(wanted.path, ending.compression or "no compression", "--compress", compress)
        compress = ending.compression
    return {"format": format, "compress": compress}
