"""`paddock instances algo`."""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from paddock.cli.connection import HERE, Connect, Server, open_server
from paddock.cli.errors import FAILED, INTERRUPTED, CommandFailed, wrong_usage
from paddock.cli.jobs.watching import bars
from paddock.cli.output import Column, Form, Item, Output, dump, facts, field, is_terminal, show, show_one, table, write
from paddock.exports.commands.export import Repeated, pairs
from paddock.instances.commands.naming import Name, id_of
from paddock.instances.commands.words import cell, harmless
from paddock.jobs.reports import how_far, share

if TYPE_CHECKING:
    from rich.console import RenderableType

    from paddock.client import Client

AT_ONCE = "shortest_path"


def algo(
    instance: Name,
    algorithm: str | None = None,
    /,
    *,
    param: Repeated = None,
    label: Repeated = None,
    edge_type: Repeated = None,
    weight: str | None = None,
    write_property: Annotated[str | None, Parameter(name="--write")] = None,
    wait: bool = True,
    output: Output = "table",
    connect: Connect = HERE,
) -> int:
    """Run an algorithm over the graph, whose result becomes a property of the nodes; without a name, list them.

    Parameters
    ----------
    algorithm:
        Its name, like pagerank.
    param:
        A parameter of the algorithm, as name=value: damping=0.9, source=KFD; repeat the option for several.
    label:
        Only nodes with this label take part; repeat the option for several.
    edge_type:
        Only these edges count; repeat the option for several.
    weight:
        The property of the edges that is their weight.
    write_property:
        The property that the result becomes. Default: the algorithm's name.
    wait:
        Follow it to its end (default); --no-wait only starts it.
    """
    server = open_server(connect)
    id = id_of(server, instance, "running")
    if algorithm is None:
        listed = server.ask(lambda client: client.instances.connect(id).algo.list())
        show(listed, COLUMNS, output, name="name", none="No algorithms.")
        return 0
    given = {
        "node_labels": label,
        "edge_types": edge_type,
        "weight_property": weight,
        "write_property": write_property,
    }
    asked = pairs(param, "--param") | {name: value for name, value in given.items() if value is not None}
    if algorithm == AT_ONCE:
        return _shortest_path(server, id, asked, output)
    started = server.ask(lambda client: client.instances.connect(id).algo.start(algorithm, **asked))
    if wait:
        _tell(_followed(server, id, started, output)["result"], output, instance, connect)
    else:
        _tell_started(started, output, connect)
    return 0


def _shortest_path(server: Server, id: str, asked: dict[str, Any], output: Form) -> int:
    if not {"source", "target"} <= asked.keys():
        raise wrong_usage("A path has two ends.", "Give them with --param source=KEY --param target=KEY.")
    found = server.ask(lambda client: client.instances.connect(id).algo.shortest_path(**asked))
    if output in ("json", "yaml"):
        dump(found, output)
    elif not found["found"]:
        sys.stderr.write(f"There is no path of at most {found['max_hops']} edges.\n")
        return FAILED
    else:
        sys.stdout.write(f"{path_text(found['path'])}\n")
    return 0


def path_text(path: Item) -> str:
    """`XHY -ROUTE-> KFD`, each node by its key, which is the first of its properties."""
    nodes = [next((cell(value) for name, value in node.items() if name[0] != "_"), "?") for node in path["_nodes"]]
    edges = [f" -{harmless(edge['_type'])}-> " for edge in path["_rels"]]
    return "".join(part for pair in zip(nodes, [*edges, ""], strict=True) for part in pair)


def _followed(server: Server, id: str, started: Item, output: Form) -> Item:
    def wait(client: "Client", tell: Any = None) -> Item:
        return client.instances.connect(id).algo.wait(dict(started), on_progress=tell)

    try:
        if output != "table" or not is_terminal():
            return server.ask(wait)
        with bars() as progress:
            task = progress.add_task(started["algorithm"], total=100, status="", detail="")

            def draw(now: Item) -> None:
                known = how_far(now)
                detail = ", ".join(word for word in (share(known.percent), known.phase) if word)
                progress.update(task, completed=known.percent or 0, detail=detail.replace("[", "\\["))

            return server.ask(lambda client: wait(client, draw))
    except KeyboardInterrupt:
        job = started["execution_id"]
        raise CommandFailed(
            f"\nInterrupted here; {started['algorithm']} goes on in the instance.",
            hint=f"  paddock jobs watch {job}   follows it\n  paddock jobs cancel {job}   stops it",
            exit_code=INTERRUPTED,
        ) from None


def _tell_started(execution: Item, output: Form, connect: Connect) -> None:
    show_one(execution, output, name="execution_id", person=lambda one: f"{one['algorithm']} is {one['status']}.")
    if output == "table":
        sys.stderr.write(f"  paddock jobs watch {execution['execution_id']}{connect.options}   follows it\n")


def _tell(result: Item, output: Form, instance: str, connect: Connect) -> None:
    show_one(result, output, name="property", person=_sheet)
    if output != "table":
        return
    largest = result.get("largest") or []
    if largest:
        write(table(largest, [_column(name) for name in ORDER if name in largest[0]]))
    name = result["property"]
    query = f"MATCH (n) RETURN n.{name}, n ORDER BY n.{name} DESC LIMIT 5"
    name = f"{shlex.quote(instance)}{connect.options}"
    sys.stderr.write(f"  paddock instances query {name} {shlex.quote(query)}   reads it\n")


def _sheet(result: Item) -> "RenderableType":
    known = {name: result.get(name) for name in ("algorithm", "property", "nodes", "edges", "seconds")}
    told = {**known, **(result.get("figures") or {})}
    return facts([(name.replace("_", " "), value) for name, value in told.items()])


def _column(name: str) -> Column:
    return Column(name, lambda row: _number(row[name]), right=name in ("value", "nodes"))


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else cell(value)


# What a row of the largest may have.
ORDER = ("label", "key", "component", "community", "value", "nodes")
COLUMNS = (
    field("name"),
    Column("parameters", lambda one: ", ".join(parameter["name"] for parameter in one["parameters"]), wide=True),
    field("description", wide=True),
)
