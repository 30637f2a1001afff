"""A mapping as a person reads it: each node and edge with its columns in order, and what an engine found of them."""

from collections.abc import Sequence
from dataclasses import dataclass

from paddock.amounts import listed
from paddock.exports import mapping
from paddock.exports.mapping import Definition, Node
from paddock.jobs.model import JsonObject
from paddock.web.words import plural


@dataclass(frozen=True, slots=True)
class MappingColumn:
    """`part` is key, from, to or empty; `wrong` what the engine found instead, with expected, found and hint; `warning`
    a sentence on what is allowed and may still be a mistake."""

    name: str
    type: str
    part: str
    field: str
    wrong: JsonObject | None = None
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """`valid` is None where no engine was asked."""

    section: str
    name: str
    ends: str
    sql: str
    columns: Sequence[MappingColumn]
    valid: bool | None = None
    error: JsonObject | None = None

    @property
    def problems(self) -> int:
        return sum(column.wrong is not None for column in self.columns) + (self.error is not None)


def entities(definition: Definition, judged: JsonObject | None = None) -> list[Entity]:
    """With `judged`, the answer of a validation, each mismatch stands at its column."""
    found = {(one["section"], one["name"]): one for one in (judged or {}).get("entities", ())}
    keys = {node.label: node.primary_key.type for node in definition.nodes}
    shown = []
    for place, node in enumerate(definition.nodes):
        at = f"nodes.{place}"
        columns = [MappingColumn(node.primary_key.name, node.primary_key.type, "key", f"{at}.primary_key")]
        shown.append(_entity(at, node, node.label, "", columns, found.get(("nodes", node.label))))
    for place, edge in enumerate(definition.edges):
        at = f"edges.{place}"
        columns = [
            MappingColumn(edge.from_key, keys.get(edge.from_node, "?"), "from", f"{at}.from_key"),
            MappingColumn(edge.to_key, keys.get(edge.to_node, "?"), "to", f"{at}.to_key"),
        ]
        ends = f"{edge.from_node} → {edge.to_node}"
        shown.append(_entity(at, edge, edge.type, ends, columns, found.get(("edges", edge.type))))
    return shown


def _entity(
    at: str,
    declared: Node | mapping.Edge,
    name: str,
    ends: str,
    keys: Sequence[MappingColumn],
    judged: JsonObject | None,
) -> Entity:
    columns = [
        *keys,
        *(MappingColumn(p.name, p.type, "", f"{at}.properties.{place}") for place, p in enumerate(declared.properties)),
    ]
    section = "nodes" if isinstance(declared, Node) else "edges"
    if judged is None:
        return Entity(section, name, ends, declared.sql, columns)
    wrong = {one["position"]: one for one in judged["mismatches"]}
    warnings = {one["position"]: one["message"] for one in judged["warnings"]}
    marked = [
        MappingColumn(column.name, column.type, column.part, column.field, wrong.get(place), warnings.get(place))
        for place, column in enumerate(columns)
    ]
    # The query gives columns that nobody declared.
    marked += [
        MappingColumn(one["column"], one["expected"], "", one["field"], one)
        for place, one in wrong.items()
        if place >= len(columns)
    ]
    return Entity(section, name, ends, declared.sql, marked, judged["valid"], judged["error"])


def counted(definition: Definition) -> str:
    """'2 nodes and 1 edge'."""
    return f"{plural(len(definition.nodes), 'node')} and {plural(len(definition.edges), 'edge')}"


def verdict(shown: Sequence[Entity], engine: str) -> str:
    wrong = [entity for entity in shown if not entity.valid]
    if not wrong:
        return f"Every query gives what it declares, says {engine}."
    columns = sum(column.wrong is not None for entity in wrong for column in entity.columns)
    failed = [entity.name for entity in wrong if entity.error is not None]
    parts = [
        f"{plural(columns, 'column does', 'columns do')} not fit" if columns else "",
        f"{listed(failed)} could not be described" if failed else "",
    ]
    return f"{'; '.join(part for part in parts if part)}, says {engine}."
