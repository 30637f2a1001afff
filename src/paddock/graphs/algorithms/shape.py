"""The labels and edge types of the loaded graph, as far as algorithms need to know them.

Definitions have the form of `POST /load`. A property that an algorithm made stands in them with the algorithm's name:
{"name": "rank", "type": "DOUBLE", "made_by": "pagerank"}. All others belong to the mapping and are never overwritten.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

Definitions = Mapping[str, Sequence[Mapping[str, Any]]]

NUMERIC = ("INT8", "INT16", "INT32", "INT64", "FLOAT", "DOUBLE", "DECIMAL")


@dataclass(frozen=True, slots=True)
class Label:
    name: str
    key: str
    key_type: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class EdgeType:
    name: str
    source: str
    target: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Shape:
    labels: Mapping[str, Label]
    edge_types: Mapping[str, EdgeType]
    # (label, property) of what algorithms made.
    made: Sequence[tuple[str, str]]

    def label_that_maps(self, name: str) -> str | None:
        """The label that has this property from the mapping. Upper and lower case are the same to the engines."""
        for label in self.labels.values():
            if name.lower() in (known.lower() for known in (label.key, *label.properties)):
                return label.name
        return None

    def made_before(self, name: str) -> list[tuple[str, str]]:
        return [(label, known) for label, known in self.made if known.lower() == name.lower()]


def is_numeric(type: str) -> bool:
    return type.partition("(")[0].strip().upper() in NUMERIC


def shape_of(definitions: Definitions) -> Shape:
    labels = [
        Label(node["label"], node["key"]["name"], node["key"]["type"], _mapped(node)) for node in definitions["nodes"]
    ]
    edge_types = [EdgeType(edge["type"], edge["from"], edge["to"], _mapped(edge)) for edge in definitions["edges"]]
    made = [
        (node["label"], declared["name"])
        for node in definitions["nodes"]
        for declared in node["properties"]
        if "made_by" in declared
    ]
    return Shape({label.name: label for label in labels}, {type.name: type for type in edge_types}, made)


def _mapped(table: Mapping[str, Any]) -> dict[str, str]:
    return {declared["name"]: declared["type"] for declared in table["properties"] if "made_by" not in declared}


def with_result(
    definitions: Definitions, labels: Sequence[str], name: str, type: str, algorithm: str
) -> dict[str, list[dict[str, Any]]]:
    """The definitions once the result is a property of these labels, and of no others."""
    changed = {section: [dict(deepcopy(table)) for table in tables] for section, tables in definitions.items()}
    for node in changed["nodes"]:
        kept = [one for one in node["properties"] if "made_by" not in one or one["name"].lower() != name.lower()]
        if node["label"] in labels:
            kept.append({"name": name, "type": type, "made_by": algorithm})
        node["properties"] = kept
    return changed
