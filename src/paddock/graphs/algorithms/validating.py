"""From what somebody sent to what will be done: everything that can be refused is refused here, before a child runs.

What comes out names only labels, edge types and properties that are there, so the children may put the names into
Cypher, in backticks."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from typing import Any

from paddock.graphs.algorithms.shape import EdgeType, Shape, is_numeric
from paddock.graphs.algorithms.table import ALGORITHMS, TIMEOUT, Algorithm, Parameter, Value
from paddock.graphs.problems import Problem, invalid

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,62}\Z")
NAME_RULE = "A letter, then letters, digits and underscores, at most 63 in all; names that begin with '_' are reserved."


@dataclass(frozen=True, slots=True)
class Task:
    """One execution as its children are told it. `keys` tells name and type of the key of each label that takes part."""

    algorithm: str
    keys: Mapping[str, Mapping[str, str]]
    # (type, label it comes from, label it goes to)
    edges: Sequence[tuple[str, str, str]]
    weight_property: str | None
    property: str
    type: str
    # (label, property) of earlier results of this name: they are taken away, also where the label takes no part now.
    replaces: Sequence[tuple[str, str]]
    parameters: Mapping[str, Value]
    timeout_ms: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def algorithm_named(name: str) -> Algorithm:
    found = ALGORITHMS.get(name)
    if found is None:
        there = ", ".join(ALGORITHMS)
        raise Problem(
            422,
            "unknown_algorithm",
            f"There is no algorithm {_quoted(name)}; there are {there}.",
            details={"algorithms": list(ALGORITHMS)},
        )
    return found


def task_of(algorithm: Algorithm, body: Mapping[str, Any], shape: Shape) -> Task:
    """`body` without what is about the execution itself (its id and owner)."""
    assert algorithm.function is not None, "a query is no execution"
    assert algorithm.type is not None
    known_fields(algorithm, body)
    parameters = {parameter.name: value_of(parameter, body) for parameter in algorithm.parameters}
    labels, edges = _part_of(body, shape)
    weight = _weight(algorithm, body, edges)
    name = _written(algorithm, body, shape)
    timeout = value_of(TIMEOUT, body)
    assert isinstance(timeout, int)
    return Task(
        algorithm=algorithm.name,
        keys={name: {"name": shape.labels[name].key, "type": shape.labels[name].key_type} for name in labels},
        edges=[(edge.name, edge.source, edge.target) for edge in edges],
        weight_property=weight,
        property=name,
        type=algorithm.type if weight is None else algorithm.weighted_type or algorithm.type,
        replaces=shape.made_before(name),
        parameters=parameters,
        timeout_ms=timeout,
    )


def known_fields(algorithm: Algorithm, body: Mapping[str, Any]) -> None:
    known = [parameter.name for parameter in algorithm.all_parameters()]
    for field in body:
        if field not in known:
            if field == "weight_property":
                raise invalid(field, f"{algorithm.title} takes no weights; leave it out.")
            close = get_close_matches(field, known, 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise invalid(field, f"{algorithm.name} has no such parameter; it has {', '.join(known)}.{meant}")


def value_of(parameter: Parameter, body: Mapping[str, Any]) -> Value:
    given = body.get(parameter.name)
    if given is None:
        return parameter.default
    if parameter.type == "string":
        if not isinstance(given, str) or given not in parameter.choices:
            raise invalid(parameter.name, f"It is one of {', '.join(parameter.choices)}.")
        return given
    number = _whole(given) if parameter.type == "integer" else _number(given)
    if number is None or not _in_range(parameter, number):
        raise invalid(parameter.name, _range(parameter))
    return number


def _whole(given: object) -> int | None:
    if isinstance(given, bool):
        return None
    if isinstance(given, float) and given.is_integer():
        return int(given)
    return given if isinstance(given, int) else None


def _number(given: object) -> float | None:
    if isinstance(given, bool) or not isinstance(given, int | float):
        return None
    try:
        number = float(given)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _in_range(parameter: Parameter, number: float) -> bool:
    if parameter.least is not None and (number < parameter.least or (parameter.above and number == parameter.least)):
        return False
    return parameter.most is None or number <= parameter.most


def _range(parameter: Parameter) -> str:
    what = "A whole number" if parameter.type == "integer" else "A number"
    if parameter.above:
        return f"{what} above {parameter.least:,} and at most {parameter.most:,}."
    return f"{what} from {parameter.least:,} to {parameter.most:,}."


def _part_of(body: Mapping[str, Any], shape: Shape) -> tuple[list[str], list[EdgeType]]:
    """The labels and edge types that take part. An edge type counts only if both of its ends do."""
    labels = names(body, "node_labels", list(shape.labels), "label")
    types = names(body, "edge_types", list(shape.edge_types), "edge type")
    if types is None:
        labels = labels or list(shape.labels)
        inside = [edge for edge in shape.edge_types.values() if edge.source in labels and edge.target in labels]
        return labels, inside
    edges = [shape.edge_types[name] for name in types]
    if labels is None:
        ends = {end for edge in edges for end in (edge.source, edge.target)}
        return [label for label in shape.labels if label in ends], edges
    for edge in edges:
        for end in (edge.source, edge.target):
            if end not in labels:
                raise invalid(
                    "edge_types",
                    f"{edge.name} goes from {edge.source} to {edge.target}, and {end} is not among node_labels.",
                )
    return labels, edges


def names(body: Mapping[str, Any], field: str, there: Sequence[str], what: str) -> list[str] | None:
    """In the order of the graph, each once; None when the field was left out."""
    given = body.get(field)
    if given is None:
        return None
    if not isinstance(given, list) or not given or not all(isinstance(name, str) for name in given):
        raise invalid(field, f"A list with at least one {what}, such as {list(there[:1])}.")
    for name in given:
        if name not in there:
            raise invalid(field, f"The graph has no {what} {_quoted(name)}; it has {_some(there)}.")
    return [name for name in there if name in given]


def _weight(algorithm: Algorithm, body: Mapping[str, Any], edges: Sequence[EdgeType]) -> str | None:
    name = body.get("weight_property")
    if name is None:
        return None
    for edge in edges:
        if not isinstance(name, str) or name not in edge.properties:
            there = f"it has {_some(list(edge.properties))}" if edge.properties else "it has none"
            raise invalid("weight_property", f"{edge.name} has no property {_quoted(name)}; {there}.")
        if not is_numeric(edge.properties[name]):
            raise invalid(
                "weight_property",
                f"{name} of {edge.name} is {edge.properties[name]}; a weight is a number (INT8 to INT64, FLOAT, DOUBLE,"
                " DECIMAL).",
            )
    if not edges:
        raise invalid("weight_property", "No edge type takes part, so there is nothing that could have a weight.")
    assert isinstance(name, str)
    return name


def _written(algorithm: Algorithm, body: Mapping[str, Any], shape: Shape) -> str:
    name = body.get("write_property")
    if name is None:
        name = algorithm.name
    if not isinstance(name, str) or not NAME.match(name):
        raise invalid("write_property", NAME_RULE)
    label = shape.label_that_maps(name)
    if label is not None:
        raise Problem(
            409,
            "property_of_mapping",
            f"{name} is a property of {label} in the mapping, and those are never overwritten.",
            hint="Choose another write_property.",
            details={"label": label, "property": name},
        )
    return name


def _quoted(given: object) -> str:
    text = given if isinstance(given, str) else str(given)
    return repr(text if len(text) <= 63 else f"{text[:63]}…")


def _some(there: Sequence[str]) -> str:
    return ", ".join(there) if len(there) <= 20 else f"{', '.join(there[:20])} and {len(there) - 20:,} more"
