"""The shortest path between two nodes: a query of ours, run as any user's query is, in the engine child.

Names in its text come from the graph's definitions and stand in backticks; keys are parameters. An answer without a
row has three possible reasons: whether the nodes are there is asked afterwards."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from paddock.graphs.algorithms.shape import Label, Shape
from paddock.graphs.algorithms.table import ALGORITHMS, SHORTEST_PATH
from paddock.graphs.algorithms.validating import known_fields, names, value_of
from paddock.graphs.problems import Problem, invalid

Key = str | int
# How a key is written in a comparison, by its type.
COMPARED = {"STRING": "{}", "INT64": "{}", "DATE": "date({})", "UUID": "uuid({})"}


@dataclass(frozen=True, slots=True)
class End:
    """One end of the path."""

    field: str
    label: Label
    key: Key

    def condition(self, variable: str) -> str:
        value = COMPARED[self.label.key_type].format(f"${self.field}")
        return f"{variable}.`{self.label.key}` = {value}"

    def existence(self) -> str:
        return f"MATCH (n:`{self.label.name}`) WHERE {self.condition('n')} RETURN count(*)"


@dataclass(frozen=True, slots=True)
class ShortestPath:
    source: End
    target: End
    edge_types: Sequence[str]
    max_hops: int

    def query(self) -> str:
        if self._same():
            # The engines look for paths of one edge or more.
            return f"MATCH p = (a:`{self.source.label.name}`) WHERE {self.source.condition('a')} RETURN p, 0 AS hops"
        types = "|".join(f"`{name}`" for name in self.edge_types)
        return (
            f"MATCH p = (a:`{self.source.label.name}`)-[:{types}* SHORTEST 1..{self.max_hops}]->"
            f"(b:`{self.target.label.name}`) WHERE {self.source.condition('a')} AND {self.target.condition('b')}"
            " RETURN p, length(p) AS hops LIMIT 1"
        )

    def parameters(self) -> dict[str, Key]:
        both = {"source": self.source.key, "target": self.target.key}
        return {"source": self.source.key} if self._same() else both

    def _same(self) -> bool:
        return self.source.label == self.target.label and self.source.key == self.target.key


def shortest_path_of(body: Mapping[str, Any], shape: Shape) -> ShortestPath:
    algorithm = ALGORITHMS[SHORTEST_PATH]
    known_fields(algorithm, body)
    chosen = names(body, "edge_types", list(shape.edge_types), "edge type")
    types = list(shape.edge_types.values()) if chosen is None else [shape.edge_types[name] for name in chosen]
    if not types:
        raise Problem(422, "invalid", "The graph has no edges, so it has no paths.")
    [hops] = [value_of(one, body) for one in algorithm.parameters if one.name == "max_hops"]
    assert isinstance(hops, int)
    source = _end("source", body, shape, {edge.source for edge in types})
    target = _end("target", body, shape, {edge.target for edge in types})
    return ShortestPath(source, target, [edge.name for edge in types], hops)


def missing(end: End) -> Problem:
    return Problem(
        422,
        "node_not_found",
        f"{end.field}: there is no {end.label.name} with the {end.label.key} {end.key!r}.",
        details={"field": end.field, "label": end.label.name},
    )


def _end(field: str, body: Mapping[str, Any], shape: Shape, candidates: set[str]) -> End:
    given = body.get(field)
    if isinstance(given, dict):
        if set(given) != {"label", "key"}:
            raise invalid(field, 'Write the key alone, or {"label": …, "key": …}.')
        if given["label"] not in list(shape.labels):
            raise invalid(
                field, f"The graph has no label {str(given['label'])[:63]!r}; it has {', '.join(shape.labels)}."
            )
        label = shape.labels[given["label"]]
        return End(field, label, key_of(field, given["key"], label))
    if given is None:
        raise invalid(field, "It is missing: the key of a node.")
    return _end_by_key(field, given, [label for label in shape.labels.values() if label.name in candidates])


def _end_by_key(field: str, given: object, candidates: Sequence[Label]) -> End:
    """Where the label is not said, it must be clear: from the edge types, and from what kind of key this is."""
    fitting = [label for label in candidates if _key(given, label.key_type) is not None]
    if len(fitting) > 1:
        there = ", ".join(label.name for label in fitting)
        raise invalid(field, f'It could be a key of {there}: write {{"label": "{fitting[0].name}", "key": …}}.')
    label = fitting[0] if fitting else candidates[0]
    return End(field, label, key_of(field, given, label))


def key_of(field: str, given: object, label: Label) -> Key:
    key = _key(given, label.key_type)
    if key is None:
        raise invalid(field, f"The key of {label.name} is of type {label.key_type}; {str(given)[:63]!r} is not.")
    return key


def _key(given: object, type: str) -> Key | None:
    if type == "INT64":
        whole = isinstance(given, int) and not isinstance(given, bool) and -(1 << 63) <= given < 1 << 63
        return given if whole and isinstance(given, int) else None
    if not isinstance(given, str) or "\x00" in given:
        return None
    try:
        given.encode()  # half a character is no text
        if type == "DATE":
            return date.fromisoformat(given).isoformat()
        return str(uuid.UUID(given)) if type == "UUID" else given
    except ValueError:
        return None
