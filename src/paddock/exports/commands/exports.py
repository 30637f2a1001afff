"""`paddock exports`: the files that exports made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from paddock.amounts import number, size
from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.downloading import fetch, wanted
from paddock.cli.jobs.watching import follow
from paddock.cli.output import Column, Item, Output, facts, field, show, show_one
from paddock.cli.wording import ago
from paddock.jobs.reports import how_far

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="exports", help="Exports and their files.")


@app.command(name="list")
def list_exports(
    *,
    q: str | None = None,
    status: str | None = None,
    engine: str | None = None,
    owner: str | None = None,
    limit: int = 20,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List exports, newest first.

    Parameters
    ----------
    q:
        A part of the name, the table or the query.
    status:
        Only those that are pending, completed, failed, cancelled or deleting.
    engine:
        Only those of this engine.
    owner:
        Only theirs.
    limit:
        How many at most.
    """
    found = open_server(connect).pages("/api/exports", limit, owner=owner, status=status, engine=engine, q=q)
    show(found, COLUMNS, output, none="No exports.")
    return 0


@app.command(name="show")
def show_export(export: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Show one export and its files.

    Parameters
    ----------
    export:
        Its id.
    """
    server = open_server(connect)
    found = server.get(f"/api/exports/{export}")
    show_one(found, output, person=_person)
    if output == "table" and found["status"] == "completed":
        show(server.get(f"/api/exports/{export}/files")["files"], FILES, "table", none="No files.")
    return 0


@app.command
def watch(export: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Follow an export to its end.

    Parameters
    ----------
    export:
        Its id.
    """
    server = open_server(connect)
    [job] = follow(server, [str(server.get(f"/api/exports/{export}")["job_id"])], output)
    return 0 if job["status"] == "completed" else 1


@app.command
def download(
    export: str,
    *,
    to: Annotated[str, Parameter(allow_leading_hyphen=True)],
    force: Annotated[bool, Parameter(negative=())] = False,
    connect: Connect = HERE,
) -> int:
    """Download the files of a completed export; a broken download resumes where it stopped.

    Parameters
    ----------
    export:
        Its id.
    to:
        A folder, a file (if there is one), or - for standard output.
    force:
        Replace the file, or in a folder the files of an earlier export; anything else in it is refused.
    """
    target = wanted(to, force=force)
    server = open_server(connect)
    fetch(server, server.get(f"/api/exports/{export}"), target)
    return 0


@app.command
def cancel(export: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Cancel a running export.

    Parameters
    ----------
    export:
        Its id.
    """
    server = open_server(connect)
    server.post(f"/api/jobs/{server.get(f'/api/exports/{export}')['job_id']}/cancel", {})
    show_one({"id": export, "status": "cancelled"}, output, person=lambda _: f"{export} is being cancelled.")
    return 0


@app.command
def rm(export: str, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Delete an export and its files.

    Parameters
    ----------
    export:
        Its id.
    """
    gone = open_server(connect).delete(f"/api/exports/{export}")
    show_one(gone, output, person=lambda _: f"{export} is being deleted.")
    return 0


def _rows(export: Item) -> str:
    rows = _so_far(export, "rows")
    return "-" if rows is None else number(rows)


def _size(export: Item) -> str:
    held = _so_far(export, "bytes")
    return "-" if held is None else size(held)


def _so_far(export: Item, amount: str) -> float | None:
    made: float | None = export[amount]
    return how_far(export.get("report")).amounts.get(amount) if made is None else made


def _what(export: Item) -> str:
    request = export["request"]
    return " ".join(str(request.get("sql") or request.get("table") or "-").split())


def _person(export: Item) -> "RenderableType":
    error = export.get("error") or {}
    return facts(
        [
            ("id", export["id"]),
            ("status", export["status"]),
            ("error", error.get("message")),
            ("what", _what(export)),
            ("engine", export["engine"]),
            ("role", export["role"]),
            ("rows", _rows(export)),
            ("size", _size(export)),
            ("destination", export["request"].get("destination")),
            ("owner", export["owner"]),
            ("created", ago(export["created_at"])),
            ("expires", ago(export["expires_at"])),
            ("job", export["job_id"]),
        ]
    )


COLUMNS: Sequence[Column] = (
    field("id"),
    field("status"),
    field("engine"),
    Column("what", _what, wide=True, longest_in_pipe=100),
    Column("rows", _rows, right=True),
    Column("size", _size, right=True),
    Column("created", lambda export: ago(export["created_at"])),
    Column("expires", lambda export: ago(export["expires_at"])),
)
FILES: Sequence[Column] = (
    field("name", wide=True),
    Column("rows", lambda file: number(file["rows"]), right=True),
    Column("size", lambda file: size(file["bytes"]), right=True),
    Column("sha256", lambda file: str(file["sha256"] or "-")[:16]),
)
