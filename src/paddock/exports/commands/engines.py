"""`paddock engines`: what runs the queries, and what there is to query."""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import FAILED
from paddock.cli.output import Column, Output, dump, field, show, show_one

app = App(name="engines", help="What runs the queries.")

Role = Annotated[str | None, Parameter(help="The engine role to work under (X-Use-Case-Id).")]


@app.command(name="list")
def list_engines(*, output: Output = "table", connect: Connect = HERE) -> int:
    """List the engines your token may use."""
    show(open_server(connect).get("/api/engines"), COLUMNS, output, name="name", none="No engines.")
    return 0


@app.command
def check(engine: str | None = None, *, role: Role = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Connect to an engine, or to each that your token may use, and say what works. Exits 1 unless all of it does.

    Parameters
    ----------
    engine:
        Its name.
    """
    server = open_server(connect)
    names = [engine] if engine else [known["name"] for known in server.get("/api/engines")]
    findings = [finding for name in names for finding in _findings(server, name, role)]
    show(findings, FINDINGS if engine else (field("engine"), *FINDINGS), output, name="what", none="No engines.")
    return 0 if all(finding["ok"] for finding in findings) else FAILED


def _findings(server: Server, engine: str, role: str | None) -> list[dict[str, Any]]:
    answer = server.answer("GET", f"/api/engines/{engine}/check", role=role, timeout=60)
    return [{"engine": engine, **finding} for finding in answer["data"]["findings"]]


@app.command
def browse(
    engine: str,
    *,
    catalog: str | None = None,
    schema: str | None = None,
    table: str | None = None,
    live: Annotated[bool, Parameter(negative=())] = False,
    role: Role = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """List catalogs, then with --catalog its schemas, with --schema its tables, with --table its columns.

    Parameters
    ----------
    engine:
        Its name.
    live:
        Ask the engine, whatever the cache has.
    """
    server = open_server(connect)
    asked = {"catalog": catalog, "schema": schema, "table": table, "live": "true" if live else None}
    found = server.answer("GET", f"/api/engines/{engine}/browse", parameters=asked, role=role, timeout=60)["data"]
    if "columns" in found:
        show(found["columns"], DESCRIBED, output, name="name", none="No columns.")
    else:
        names: list[dict[str, Any]] = [{"name": name} for name in found["names"]]
        show(names, (field("name", found["level"]),), output, name="name", none=f"No {found['level']}.")
    return 0


@app.command
def search(
    text: str,
    /,
    *,
    engine: str | None = None,
    columns: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Find tables by a part of their name, in all engines that are cached and that you may use.

    Parameters
    ----------
    text:
        Two characters at least.
    engine:
        Only in this one.
    columns:
        Look for columns instead.
    """
    asked = {"q": text, "engine": engine, "in": "columns" if columns else "tables"}
    found = open_server(connect).get("/api/schema/search", **asked)
    show(found, MATCHES if columns else MATCHES[:-1], output, name="table", none="Nothing is called so.")
    return 0


@app.command
def refresh(engine: str | None = None, *, reason: str, output: Output = "table", connect: Connect = HERE) -> int:
    """Read the names of tables and columns again, of an engine or of all.

    Parameters
    ----------
    engine:
        Its name.
    reason:
        Why: kept in the audit log.
    """
    body = {"reason": reason} if engine is None else {"engine": engine, "reason": reason}
    made = open_server(connect).make_work("/api/schema/refresh", body)
    show_one(made, output, name="job_id", person=lambda item: f"{item['job_id']}  {item['job_name']}  queued")
    return 0


@app.command
def describe(engine: str, sql: str, /, *, role: Role = None, output: Output = "table", connect: Connect = HERE) -> int:
    """Show the columns a query would give, without running it.

    Parameters
    ----------
    engine:
        Its name.
    sql:
        The query.
    """
    server = open_server(connect)
    found = server.answer("POST", f"/api/engines/{engine}/describe", body={"sql": sql}, role=role, timeout=60)["data"]
    if output in ("json", "yaml"):
        dump(found, output)
    else:
        show(found["columns"], DESCRIBED, output, name="name", none="No columns.")
    return 0


@app.command
def preview(
    engine: str,
    sql: str,
    /,
    *,
    rows: int = 20,
    role: Role = None,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Show the first rows of a query.

    Parameters
    ----------
    engine:
        Its name.
    sql:
        The query.
    rows:
        How many, at most 200.
    """
    server = open_server(connect)
    body = {"sql": sql, "rows": rows}
    found = server.answer("POST", f"/api/engines/{engine}/preview", body=body, role=role, timeout=60)["data"]
    if output in ("json", "yaml"):
        dump(found, output)
        return 0
    names = [column["name"] for column in found["columns"]]
    shown = [dict(zip(names, row, strict=True)) for row in found["rows"]]
    show(shown, [field(name) for name in names], output, name=names[0], none="No rows.")
    if found["cut"]:
        sys.stderr.write("The other rows are too large to be shown.\n")
    return 0


MATCHES: Sequence[Column] = (
    field("engine"),
    field("catalog"),
    field("schema"),
    field("table"),
    Column("columns", lambda match: ", ".join(column["name"] for column in match["columns"]), wide=True),
)
COLUMNS: Sequence[Column] = (
    field("name"),
    field("type"),
    field("requires_role", "needs a role"),
    field("unload"),
    field("description", wide=True),
)
FINDINGS: Sequence[Column] = (
    Column("", lambda finding: "ok" if finding["ok"] else "NOT OK"),
    field("what"),
    field("message", wide=True),
    field("hint", wide=True),
)
DESCRIBED: Sequence[Column] = (field("name"), field("type"), field("native"), field("arrow", wide=True))
