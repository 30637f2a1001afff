"""`paddock tables`: Iceberg tables, how they are, and their maintenance."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

from cyclopts import App, Parameter

from paddock.amounts import number, several, size, span
from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import wrong_usage
from paddock.cli.jobs.showing import show_made
from paddock.cli.jobs.watching import exit_code, follow
from paddock.cli.output import Column, Item, Output, facts, field, show, show_one
from paddock.cli.wording import ago

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="tables", help="Iceberg tables, how they are, and their maintenance.")

Flag = Annotated[bool, Parameter(negative=())]
Catalog = Annotated[str | None, Parameter(help="The catalog; not needed where you have one.")]
Table = Annotated[str, Parameter(help="DATABASE.TABLE")]
# Of a plan; --output json has up to 500.
FIRST_PATHS = 10
ALL = "rewrite_data_files,rewrite_manifests,expire_snapshots"


@app.command(name="list")
def list_tables(
    *,
    catalog: Catalog = None,
    database: str | None = None,
    health: str | None = None,
    search: str | None = None,
    limit: int = 200,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List tables with their health.

    Parameters
    ----------
    database:
        Only of this one.
    health:
        Only those that are healthy, warning, critical or unknown.
    search:
        Part of a name.
    limit:
        How many at most.
    """
    asked = {"catalog": catalog, "database": database, "health": health, "q": search}
    found = open_server(connect).pages("/api/tables", limit, **asked)
    show(map(_named, found), COLUMNS, output, name="table", none="No tables.")
    return 0


@app.command(name="show")
def show_table(table: Table, *, catalog: Catalog = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Show one table: its figures, what is wrong with it, and what would help."""
    server = open_server(connect)
    found = server.get(address_of(server, table, catalog))
    _show(found, output)
    return 0


@app.command
def look(table: Table, *, catalog: Catalog = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Look at a table now, and show it."""
    server = open_server(connect)
    _show(server.answer("POST", f"{address_of(server, table, catalog)}/look", timeout=60)["data"], output)
    return 0


@app.command
def maintain(
    table: Table,
    *,
    actions: str = ALL,
    catalog: Catalog = None,
    option: Annotated[list[str] | None, Parameter(negative=())] = None,
    confirm: Flag = False,
    wait: Flag = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Maintain a table, and with --wait follow the job to its end: exit 0 when all went well, 1 when not.

    Parameters
    ----------
    actions:
        Which, with commas; they always run in the order that frees most.
    option:
        NAME=VALUE, as often as needed: target_file_size_bytes, min_input_files, max_bytes, max_snapshot_age_hours,
        min_snapshots_to_keep, remove_refs, older_than_hours.
    confirm:
        Go below floors and past guards; for operators.
    wait:
        Follow it until it ends.
    """
    server = open_server(connect)
    body = {"actions": _words(actions), "options": _options(option), "confirm": confirm}
    return _run(server, table, catalog, body, wait=wait, output=output)


@app.command
def plan(
    table: Table,
    *,
    actions: str = f"{ALL},remove_orphan_files",
    catalog: Catalog = None,
    option: Annotated[list[str] | None, Parameter(negative=())] = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Show what maintenance would do, without doing anything.

    Parameters
    ----------
    actions:
        Which, with commas.
    option:
        NAME=VALUE, as for `maintain`.
    """
    server = open_server(connect)
    body = {"actions": _words(actions), "options": _options(option), "dry_run": True}
    return _run(server, table, catalog, body, wait=True, output=output)


@app.command
def history(
    table: Table, *, catalog: Catalog = None, limit: int = 50, output: Output = "table", connect: Connect = HERE
) -> int:
    """List what was done to a table, newest first.

    Parameters
    ----------
    limit:
        How many at most.
    """
    server = open_server(connect)
    found = server.pages(f"{address_of(server, table, catalog)}/history", limit)
    show(found, ACTIONS_DONE, output, name="job_id", none="Nothing was done to it yet.")
    return 0


@app.command
def why(table: Table, *, catalog: Catalog = None, connect: Connect = HERE) -> int:
    """Say in words why a table is, or is not, maintained by itself now."""
    server = open_server(connect)
    found = server.get(address_of(server, table, catalog))
    for each in found["recommended"]:
        sys.stdout.write(f"{each['action']} is recommended. {each['why']}\n")
    sys.stdout.write(f"{found['why_not_now'] or 'It is due, and the next pass submits its maintenance.'}\n")
    return 0


def _run(server: Server, table: str, catalog: str | None, body: dict[str, Any], *, wait: bool, output: Output) -> int:
    database, name = split(table)
    chosen = catalog or only_catalog(server)
    path = f"/tables/{quote(database, safe='')}/{quote(name, safe='')}/maintenance?catalog={quote(chosen, safe='')}"
    job = server.make_work(path, body)
    if not wait:
        show_made([job], output)
        return 0
    ended = follow(server, [str(job["id"])], output)
    if output == "table":
        for each in ended:
            _tell_outcomes(each)
    return exit_code(ended)


def _tell_outcomes(job: Item) -> None:
    outcomes = (job.get("result") or job.get("saved") or {}).get("outcomes", [])
    if outcomes:
        show(outcomes, OUTCOMES, "table", none="")
    for each in outcomes:
        details = each.get("details", {})
        if paths := details.get("paths"):
            first = [{"path": path} for path in paths[:FIRST_PATHS]]
            sys.stdout.write(
                f"\n{each['action']}: the first {len(first)} of {number(details['deleted_files'])} files\n"
            )
            show(first, PATHS, "table", none="")


def split(table: str) -> tuple[str, str]:
    database, dot, name = table.rpartition(".")
    if not dot or not database or not name:
        raise wrong_usage(f"'{table}' is no table: write DATABASE.TABLE.")
    return database, name


def address_of(server: Server, table: str, catalog: str | None) -> str:
    database, name = split(table)
    parts = (catalog or only_catalog(server), database, name)
    return "/api/tables/" + "/".join(quote(part, safe="") for part in parts)


def only_catalog(server: Server) -> str:
    names = [str(each["name"]) for each in server.get("/api/catalogs")]
    if len(names) != 1:
        raise wrong_usage(f"Name the catalog: --catalog {' or '.join(names) or 'NAME (none is configured)'}.")
    return names[0]


def _words(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _options(given: Sequence[str] | None) -> dict[str, Any]:
    options: dict[str, Any] = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise wrong_usage(f"'{text}' is no option: write NAME=VALUE.")
        options[name.strip()] = _words(value) if name.strip() == "remove_refs" else value.strip()
    return options


def _named(item: Item) -> Item:
    return {**item, "table": f"{item['database']}.{item['name']}"}


def _show(found: Item, output: Output) -> None:
    show_one(_named(found), output, name="table", person=_person)
    if output == "table" and found["issues"]:
        sys.stdout.write("\n")
        show(found["issues"], ISSUES, "table", none="")


def _person(item: Item) -> "RenderableType":
    figures = item["figures"]
    return facts(
        [
            ("table", f"{item['catalog']}.{item['table']}"),
            ("health", item["health"]),
            ("problem", item["problem"]),
            ("location", item["location"]),
            ("data files", _files(figures)),
            ("delete files", figures.get("delete_files")),
            ("rows", number(figures.get("records", 0))),
            ("manifests", figures.get("manifests")),
            ("snapshots", figures.get("snapshots")),
            ("last commit", ago(figures.get("last_commit"))),
            ("recommended", [each["action"] for each in item["recommended"]]),
            ("maintained", ago(item["maintained_at"])),
            ("next", item["why_not_now"] or "with the next pass"),
            ("seen", ago(item["seen_at"])),
            ("job", item["job_id"]),
        ]
    )


def _files(figures: Item) -> str:
    small = figures.get("small_files", 0)
    return f"{several(figures.get('data_files', 0), 'file')}, {size(figures.get('bytes', 0))}, {number(small)} of them small"


def _figure(name: str) -> Column:
    return Column(name.replace("_", " "), lambda item: number(item["figures"].get(name, 0)), right=True)


def _change(item: Item) -> str:
    if item.get("files_before") is not None and item.get("files_after") is not None:
        return f"{number(item['files_before'])} -> {number(item['files_after'])}"
    return "-"


COLUMNS: Sequence[Column] = (
    field("catalog"),
    field("table"),
    field("health"),
    _figure("data_files"),
    _figure("small_files"),
    Column("size", lambda item: size(item["figures"].get("bytes", 0)), right=True),
    _figure("snapshots"),
    Column("maintained", lambda item: ago(item["maintained_at"])),
    Column("next", lambda item: ago(item["next_at"])),
)
ISSUES: Sequence[Column] = (field("severity"), field("code"), field("evidence", wide=True), field("action"))
OUTCOMES: Sequence[Column] = (
    field("action"),
    field("outcome"),
    Column("files", _change),
    Column("freed", lambda item: "-" if item.get("bytes_freed") is None else size(item["bytes_freed"]), right=True),
    field("message", wide=True),
)
PATHS: Sequence[Column] = (field("path", wide=True),)
ACTIONS_DONE: Sequence[Column] = (
    Column("at", lambda item: ago(item["at"])),
    *OUTCOMES[:4],
    Column("took", lambda item: span(item.get("elapsed_seconds") or 0), right=True),
    field("message", wide=True),
)
