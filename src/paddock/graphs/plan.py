"""What is to be loaded: the body of `POST /load`, and what is kept of it once it is."""

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from paddock.declared_types import BadType, Type, parse
from paddock.graphs.problems import Problem, invalid


class PlanColumn(msgspec.Struct, frozen=True):
    name: str
    type: str


class File(msgspec.Struct, frozen=True, omit_defaults=True):
    """At `path` on this machine, or behind `url`, a signed link."""

    sha256: str
    bytes: int
    rows: int
    path: str | None = None
    url: str | None = None


class Nodes(msgspec.Struct, frozen=True):
    label: str
    key: PlanColumn
    properties: list[PlanColumn]
    rows: int
    files: list[File]


class Edges(msgspec.Struct, frozen=True, rename={"from_label": "from", "to_label": "to"}):
    type: str
    from_label: str
    to_label: str
    properties: list[PlanColumn]
    rows: int
    files: list[File]


class Plan(msgspec.Struct, frozen=True):
    nodes: list[Nodes]
    edges: list[Edges]

    def tables(self) -> Iterator["Table"]:
        """In the order in which they are loaded: an edge needs the nodes at its ends."""
        for nodes in self.nodes:
            yield Table("nodes", nodes.label, nodes.rows, nodes.files)
        for edges in self.edges:
            yield Table("edges", edges.type, edges.rows, edges.files)


class Table(msgspec.Struct, frozen=True):
    section: Literal["nodes", "edges"]
    name: str
    rows: int
    files: Sequence[File]


def read_plan(body: bytes) -> Plan:
    try:
        plan = msgspec.json.decode(body, type=Plan)
    except msgspec.ValidationError as problem:
        raise invalid("body", str(problem)) from None
    except msgspec.DecodeError:
        raise Problem(400, "invalid_json", "The body is not valid JSON.") from None
    _check(plan)
    return plan


def _check(plan: Plan) -> None:
    names: set[str] = set()
    for table in plan.tables():
        # Names stand in backticks in what the loader runs; the engine has no way to write one inside of them.
        for name in (table.name, *(column.name for column in columns_of(plan, table))):
            if not name or "`" in name or "\x00" in name:
                raise invalid("body", f"{name!r} cannot be the name of a label, an edge type or a property.")
        if table.name.lower() in names:
            raise invalid("body", f"Two tables are called {table.name}.")
        names.add(table.name.lower())
        for column in columns_of(plan, table):
            loadable(column)
        for file in table.files:
            if (file.path is None) == (file.url is None):
                raise invalid("body", f"A file of {table.name} needs either a path or a url.")
    labels = {nodes.label for nodes in plan.nodes}
    for edges in plan.edges:
        if not {edges.from_label, edges.to_label} <= labels:
            raise invalid("body", f"{edges.type} leads to a label that is not among the nodes.")


def columns_of(plan: Plan, table: Table) -> list[PlanColumn]:
    """As they are declared; the key columns of an edge have no names of their own."""
    if table.section == "nodes":
        nodes = next(one for one in plan.nodes if one.label == table.name)
        return [nodes.key, *nodes.properties]
    return next(one for one in plan.edges if one.type == table.name).properties


def loadable(column: PlanColumn) -> Type:
    """Its type, if the engines can load it: a DECIMAL inside a LIST or MAP crashes both."""
    try:
        type = parse(column.type)
    except BadType as bad:
        raise invalid("body", f"{column.name}: {bad}") from None
    if _decimal_in_collection(type, False):
        raise invalid("body", f"{column.name}: the graph engine cannot load a DECIMAL inside a LIST or a MAP.")
    return type


def _decimal_in_collection(type: Type, inside: bool) -> bool:
    if type.name == "DECIMAL":
        return inside
    return any(_decimal_in_collection(inner, inside or type.name in ("LIST", "MAP")) for inner in type.inner)
