"""`paddock cluster`: what of ours runs on Kubernetes, and whose it is."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from paddock.cli.connection import HERE, Connect, open_server
from paddock.cli.output import Item, Output, Watch, dump, facts, field, repeatedly, show_one, table

if TYPE_CHECKING:
    from rich.console import RenderableType

app = App(name="cluster", help="What of ours runs on Kubernetes, and whose it is.")


@app.command
def show(*, output: Output = "table", watch: Watch = False, connect: Connect = HERE) -> int:
    """Show every pod and Job of ours, what is wrong with it, and whose cluster it is."""
    server = open_server(connect)
    if watch:
        return repeatedly(lambda: _overview(server.get("/api/ops/cluster")))
    told: dict[str, Any] = server.get("/api/ops/cluster")
    if output in ("json", "yaml"):
        dump(told, output)
        return 0
    show_one(told, output, name="runtime", person=_overview)
    return 0


def _overview(told: Item) -> "RenderableType":
    from rich.console import Group

    installation = told.get("installation") or {}
    problem = told.get("problem") or {}
    head = facts(
        [
            ("runtime", told["runtime"]),
            ("API server", f"{told.get('server', '')} {told.get('version', '')}".strip()),
            ("problem", problem.get("message")),
            ("to do", problem.get("hint")),
            ("installation", installation.get("id")),
            ("namespace", installation.get("namespace")),
            ("home", installation.get("home")),
            ("mismatch", installation.get("mismatch")),
            ("to do", installation.get("hint")),
            ("without a row", ", ".join(told["without_row"])),
            ("without a pod", ", ".join(one["pod_name"] for one in told["without_pod"])),
            ("failures", ", ".join(f"{n} {category}" for category, n in told["failures"].items())),
        ]
    )
    return Group(head, table(told["objects"], COLUMNS)) if told["objects"] else head


@app.command
def adopt(
    *,
    reason: str,
    fresh: Annotated[bool, Parameter(negative=())] = False,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Bind the database to this cluster, once they no longer belong together: after a restore, a move, or a new namespace.

    Parameters
    ----------
    reason:
        Why: kept in the audit log.
    fresh:
        Under a new id: the pods that are there are left alone. Else they are taken over.
    """
    made = open_server(connect).post("/api/ops/cluster/adopt", {"reason": reason, "fresh": fresh})
    show_one(made, output, name="id", person=lambda item: f"{item['id']}  {item['namespace']}  {item['home']}")
    return 0


@app.command(show=False)
def reach(places: str) -> int:
    """What the probe of `paddock doctor --cluster` runs in its pod."""
    from paddock.cluster.reaching import main

    main(places)
    return 0


COLUMNS = (
    field("kind"),
    field("name"),
    field("state"),
    field("node"),
    field("owner"),
    field("told", "what is wrong", wide=True),
)
