"""The nodes and relationships in an answer, as the graph view draws them. What an instance answers is hostile: whatever does
not look like a node or a relationship is left out, and no more is drawn than can be seen."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

MOST_NODES = 300
MOST_EDGES = 1_000
# By what a node is called in the picture, before its key is taken.
NAMES = ("name", "title", "label", "code", "id")
# The largest whole number that a browser reads as it was written.
MOST_EXACT = 2**53 - 1
HIDDEN = frozenset({"_id", "_label", "_type", "_src", "_dst"})


@dataclass
class Graph:
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    edges: dict[str, dict[str, Any]] = field(default_factory=dict)
    # How many different nodes the answer has.
    found: int = 0
    # Whether rows were cut, so that there may be more of them.
    cut: bool = False

    def as_json(self) -> dict[str, Any]:
        nodes, edges = [*self.nodes.values()], [*self.edges.values()]
        shown = {"nodes": nodes, "edges": edges, "found": self.found}
        return {**shown, "cut": True} if self.cut else shown


def graph_of(rows: Sequence[Any], *, cut: bool = False) -> Graph:
    graph = Graph(cut=cut)
    seen: set[str] = set()
    relationships: list[dict[str, Any]] = []
    for value in _values(rows):
        if _is_node(value):
            seen.add(value["_id"])
            if len(graph.nodes) < MOST_NODES:
                graph.nodes.setdefault(value["_id"], _node(value))
        elif _is_relationship(value) and len(relationships) < 10 * MOST_EDGES:
            relationships.append(value)
    graph.found = len(seen)
    for value in relationships:
        # A relationship without its ends in the answer has nowhere to be drawn.
        if value["_src"] in graph.nodes and value["_dst"] in graph.nodes and len(graph.edges) < MOST_EDGES:
            graph.edges.setdefault(value["_id"], _edge(value))
    return graph


def _values(rows: Sequence[Any]) -> Iterator[dict[str, Any]]:
    """Every object in the answer, those in lists and paths too."""
    waiting: list[Any] = [*reversed(rows)]
    while waiting:
        value = waiting.pop()
        if isinstance(value, list):
            waiting.extend(reversed(value))
        elif isinstance(value, dict):
            yield value
            if "_nodes" in value or "_rels" in value:
                waiting.extend([value.get("_rels") or [], value.get("_nodes") or []])


def _is_node(value: dict[str, Any]) -> bool:
    return isinstance(value.get("_id"), str) and isinstance(value.get("_label"), str)


def _is_relationship(value: dict[str, Any]) -> bool:
    return all(isinstance(value.get(name), str) for name in ("_id", "_type", "_src", "_dst"))


def _node(value: dict[str, Any]) -> dict[str, Any]:
    """`key` is the value of its first property, which is its key, as JSON: a script only hands it back."""
    properties = _properties(value)
    title = next((properties[name] for name in NAMES if properties.get(name) not in (None, "")), None)
    if title is None:
        title = next(iter(properties.values()), value["_id"])
    key = next((one for name, one in value.items() if name not in HIDDEN), None)
    return {
        "id": value["_id"],
        "label": value["_label"],
        "title": str(title)[:40],
        "key": orjson.dumps(key).decode(),
        "properties": properties,
    }


def _properties(value: dict[str, Any]) -> dict[str, Any]:
    return {name: _browser_safe(one) for name, one in value.items() if name not in HIDDEN}


def _browser_safe(value: Any) -> Any:
    """A number that a browser would round is text."""
    return str(value) if isinstance(value, int) and abs(value) > MOST_EXACT else value


def _edge(value: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": value["_id"],
        "type": value["_type"],
        "from": value["_src"],
        "to": value["_dst"],
        "properties": _properties(value),
    }
