"""`paddock catalogs`: where the tables are named."""

from collections.abc import Sequence
from urllib.parse import quote

from cyclopts import App

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.errors import FAILED
from paddock.cli.output import Column, Output, field, show
from paddock.cli.wording import ago

app = App(name="catalogs", help="Where the tables are named.")


@app.command(name="list")
def list_catalogs(*, output: Output = "table", connect: Connect = HERE) -> int:
    """List the catalogs you may use, and when they were last looked through."""
    show(open_server(connect).get("/api/catalogs"), COLUMNS, output, name="name", none="No catalogs.")
    return 0


@app.command
def check(catalog: str | None = None, *, output: Output = "table", connect: Connect = HERE) -> int:
    """Have a worker open a catalog, or each of yours, and say what works. Exits 1 unless all of it does.

    Where all of the catalog is yours to use, a tag is set on one of its tables that is maintained, and taken away again.

    Parameters
    ----------
    catalog:
        Its name.
    """
    server = open_server(connect)
    names = [catalog] if catalog else [str(known["name"]) for known in server.get("/api/catalogs")]
    findings = [
        {"catalog": name, **finding}
        for name in names
        for finding in server.answer("POST", f"/api/catalogs/{quote(name, safe='')}/check", timeout=60)["data"][
            "findings"
        ]
    ]
    show(findings, FINDINGS, output, name="what", none="No catalogs.")
    return 0 if all(finding["ok"] for finding in findings) else FAILED


FINDINGS: Sequence[Column] = (
    field("catalog"),
    Column("", lambda finding: "ok" if finding["ok"] else "NOT OK"),
    field("what"),
    field("message", wide=True),
    field("hint", wide=True),
)
COLUMNS: Sequence[Column] = (
    field("name"),
    field("type"),
    field("rewrites"),
    field("tables", right=True),
    field("databases"),
    Column("seen", lambda item: ago(item["seen_at"])),
    field("problem", wide=True),
)
