"""`paddock dumps`: the dumps there are."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

from cyclopts import App, Parameter

from paddock.amounts import number, size, span
from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import REFUSED, CommandFailed
from paddock.cli.output import Column, Item, Output, facts, field, show, show_one
from paddock.cli.wording import ago
from paddock.dumps.commands import dump_files
from paddock.dumps.commands.dump import Flag, finish, status, unreadable_tables

if TYPE_CHECKING:
    from rich.console import RenderableType

PAGE = 1000
HOLDS = (
    "Until the dump ends, PostgreSQL keeps all rows that are deleted or changed meanwhile, and its tables can be neither"
    " dropped nor altered."
)

app = App(name="dumps", help="The dumps there are.")


@app.command(name="list")
def list_dumps(
    *,
    q: str | None = None,
    status: str | None = None,
    database: str | None = None,
    owner: str | None = None,
    limit: int = 20,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List dumps, newest first.

    Parameters
    ----------
    q:
        A part of a name: of a database, a table, a file, a schedule; or of an error.
    status:
        Only those that are pending, completed, failed or cancelled.
    database:
        Only of this one.
    owner:
        Only theirs.
    limit:
        How many at most.
    """
    found = _pages(open_server(connect), limit, q=q, status=status, database=database, owner=owner)
    show(found, COLUMNS, output, name="jobId", none="No dumps.")
    return 0


@app.command(name="show")
def show_dump(dump: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Show one dump and its tables.

    Parameters
    ----------
    dump:
        Its id.
    """
    server = open_server(connect)
    found = status(server, quote(dump, safe=""))
    lacks = unreadable_tables(server, found) if output == "table" and found["status"] == "completed" else []
    show_one(found, output, name="jobId", person=lambda dump: _person(dump, lacks))
    if output == "table" and found["tables"]:
        sys.stdout.write("\n")
        tables = [{"name": name, "rows": rows} for name, rows in sorted(found["tables"].items())]
        show(tables, TABLES, "table", none="No tables.")
    return 0


@app.command
def watch(dump: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Follow a dump to its end.

    Parameters
    ----------
    dump:
        Its id.
    """
    return finish(open_server(connect), quote(dump, safe=""), None, output)


@app.command
def download(
    dump: str,
    *,
    output: Annotated[str, Parameter(name=["--output", "-o"], allow_leading_hyphen=True)] = ".",
    force: Flag = False,
    connect: Connect = HERE,
) -> int:
    """Download a dump; a broken download resumes where it stopped, and a running dump is waited for.

    Parameters
    ----------
    dump:
        Its id.
    output:
        A file, a folder (default: this one), or - for standard output.
    force:
        Write over what is there.
    """
    wanted = dump_files.target(output, force=force)
    return finish(open_server(connect), quote(dump, safe=""), wanted, "table")


@app.command
def cancel(dump: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Cancel a running dump.

    Parameters
    ----------
    dump:
        Its id.
    """
    server = open_server(connect)
    found = status(server, quote(dump, safe=""))
    if found["completedAt"] is not None:
        raise CommandFailed(
            f"{found['jobId']} is {found['status']} already.",
            hint=f"`paddock dumps rm {found['jobId']}` removes it.",
            exit_code=REFUSED,
        )
    # By its job: between the question and this it may have ended, and is then not removed.
    server.post(f"/api/jobs/{found['job']}/cancel", {})
    show_one(
        {"jobId": found["jobId"], "status": "cancelled"},
        output,
        name="jobId",
        person=lambda _: f"{found['jobId']} is being cancelled.",
    )
    return 0


@app.command
def rm(dump: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Remove a dump and its file.

    Parameters
    ----------
    dump:
        Its id.
    """
    server = open_server(connect)
    found = status(server, quote(dump, safe=""))
    if found["completedAt"] is None:
        raise CommandFailed(
            f"{found['jobId']} is being made.", hint=f"paddock dumps cancel {found['jobId']}", exit_code=REFUSED
        )
    gone = server.answer("DELETE", f"/export/jobs/{found['jobId']}")["result"]
    show_one(gone, output, name="jobId", person=lambda _: f"{found['jobId']} is being removed.")
    return 0


def _pages(server: Server, limit: int, **filters: str | None) -> Iterator[Item]:
    cursor, left = None, limit
    while left > 0:
        asked = {**filters, "limit": min(left, PAGE), "cursor": cursor, "v": 2}
        answer = server.answer("GET", "/export/jobs", parameters=asked)
        yield from answer["result"][:left]
        left -= len(answer["result"])
        cursor = answer.get("nextCursor")
        if cursor is None:
            return


def _ago(dump: Item, name: str) -> str:
    """Times come without their zone here: they are UTC."""
    return "-" if dump[name] is None else ago(f"{dump[name]}+00:00")


def _rows(dump: Item) -> str:
    """Of the tables people know; while it is made, also of those that stand behind virtual ones."""
    return "-" if not dump["rowsWritten"] else number(dump["rowsWritten"])


def _size(dump: Item) -> str:
    return "-" if not dump["bytesWritten"] else size(dump["bytesWritten"])


def _progress(dump: Item) -> str:
    return f"{dump['percent']:.0f} %" if dump["completedAt"] is None and dump["percent"] else "-"


def _what(dump: Item) -> str:
    request = dump["request"]
    named = [request["table"]] if request.get("table") else request.get("tables") or []
    without = [f"-{table}" for table in request.get("excludeTables") or []]
    return ", ".join(map(str, [*named, *without])) or "all"


def _snapshot(dump: Item) -> str | None:
    """A server that is older than we are does not tell."""
    age = dump.get("snapshotAgeSeconds")
    return None if age is None else f"{span(age)} old. {HOLDS}"


def _left(dump: Item) -> str | None:
    return None if dump["etaSeconds"] is None else span(dump["etaSeconds"])


def _person(dump: Item, lacks: Sequence[str]) -> "RenderableType":
    tables = None if not dump["totalTables"] else f"{dump['completedTables']} of {dump['totalTables']}"
    return facts(
        [
            ("id", dump["jobId"]),
            ("status", dump["status"]),
            ("error", dump["errorMessage"]),
            # A server that is older than we are does not tell.
            ("waits", dump.get("waitingReason")),
            ("database", dump["database"]),
            ("format", dump["format"]),
            ("what", _what(dump)),
            ("as of", None if dump["pointInTime"] is None else f"{dump['pointInTime']} UTC"),
            ("snapshot", _snapshot(dump)),
            ("done", None if _progress(dump) == "-" else _progress(dump)),
            ("left", _left(dump)),
            ("tables", tables),
            ("lacks", f"{', '.join(lacks)} (nobody can read their rows)" if lacks else None),
            ("table", dump["currentTable"]),
            ("rows", _rows(dump)),
            ("size", _size(dump)),
            ("restarts", dump["restarts"] or None),
            ("file", dump["fileName"]),
            ("owner", dump["owner"]),
            ("schedule", dump["schedule"]),
            ("created", _ago(dump, "createdAt")),
            ("expires", _ago(dump, "expiresAt")),
            ("job", dump["job"]),
        ]
    )


COLUMNS: Sequence[Column] = (
    field("jobId", "id"),
    field("database"),
    field("format"),
    field("status"),
    Column("tables", _what, wide=True),
    Column("done", _progress, right=True),
    Column("rows", _rows, right=True),
    Column("size", _size, right=True),
    Column("created", lambda dump: _ago(dump, "createdAt")),
    Column("expires", lambda dump: _ago(dump, "expiresAt")),
)
TABLES: Sequence[Column] = (
    field("name", "table", wide=True),
    Column("rows", lambda table: number(table["rows"]), right=True),
)
