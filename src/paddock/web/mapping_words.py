"""A mapping as a person reads it: each node and edge with its columns in order, what an engine found of them, and what
changed between two versions."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.exports import mapping
from paddock.exports.mapping import Definition, Node
from paddock.jobs.model import JsonObject
from paddock.web.words import listed, plural


@dataclass(frozen=True, slots=True)
class Column:
    """`part` is key, from, to or empty; `wrong` what the engine found instead, with expected, found and hint."""

    name: str
    type: str
    part: str
    field: str
    wrong: JsonObject | None = None


@dataclass(frozen=True, slots=True)
class Entity:
    """`valid` is None where no engine was asked."""

    section: str
    name: str
    ends: str
    sql: str
    columns: Sequence[Column]
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
        columns = [Column(node.primary_key.name, node.primary_key.type, "key", f"{at}.primary_key")]
        shown.append(_entity(at, node, node.label, "", columns, found.get(("nodes", node.label))))
    for place, edge in enumerate(definition.edges):
        at = f"edges.{place}"
        columns = [
            Column(edge.from_key, keys.get(edge.from_node, "?"), "from", f"{at}.from_key"),
            Column(edge.to_key, keys.get(edge.to_node, "?"), "to", f"{at}.to_key"),
        ]
        ends = f"{edge.from_node} → {edge.to_node}"
        shown.append(_entity(at, edge, edge.type, ends, columns, found.get(("edges", edge.type))))
    return shown


def _entity(
    at: str, declared: Node | mapping.Edge, name: str, ends: str, keys: Sequence[Column], judged: JsonObject | None
) -> Entity:
    columns = [
        *keys,
        *(Column(p.name, p.type, "", f"{at}.properties.{place}") for place, p in enumerate(declared.properties)),
    ]
    section = "nodes" if isinstance(declared, Node) else "edges"
    if judged is None:
        return Entity(section, name, ends, declared.sql, columns)
    wrong = {one["position"]: one for one in judged["mismatches"]}
    marked = [
        Column(column.name, column.type, column.part, column.field, wrong.get(place))
        for place, column in enumerate(columns)
    ]
    # The query gives columns that nobody declared.
    marked += [
        Column(one["column"], one["expected"], "", one["field"], one)
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


# What changed


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a difference: `sign` is +, -, ~ or a space, `mono` tells a line of SQL."""

    sign: str
    text: str
    mono: bool = False


@dataclass(frozen=True, slots=True)
class Changed:
    sign: str
    noun: str
    name: str
    lines: Sequence[Change]


def difference(found: JsonObject) -> list[Changed]:
    shown: list[Changed] = []
    for section, noun, key in (("nodes", "node", "label"), ("edges", "edge", "type")):
        part = found[section]
        shown += [Changed("+", noun, one[key], _whole("+", one)) for one in part["added"]]
        shown += [Changed("-", noun, one[key], _whole("-", one)) for one in part["removed"]]
        shown += [Changed("~", noun, one[key], _changes(one, key)) for one in part["changed"]]
    return shown


def _whole(sign: str, entity: Mapping[str, Any]) -> list[Change]:
    columns = [entity["primary_key"]] if "primary_key" in entity else []
    lines = [Change(sign, f"{one['name']} {one['type']}") for one in (*columns, *entity["properties"])]
    return [*lines, *(Change(sign, line, mono=True) for line in entity["sql"].splitlines())]


def _changes(change: Mapping[str, Any], key: str) -> list[Change]:
    lines: list[Change] = []
    for name, told in change.items():
        if name == "properties":
            lines += _properties(told)
        elif name == "sql":
            lines += _sql(told["from"], told["to"])
        elif name == "primary_key":
            lines.append(Change("~", f"key {' '.join(told['from'].values())} → {' '.join(told['to'].values())}"))
        elif name != key:
            lines.append(Change("~", f"{name} {told['from']} → {told['to']}"))
    return lines


def _properties(told: Mapping[str, Any]) -> list[Change]:
    lines = [Change("+", f"{one['name']} {one['type']}") for one in told["added"]]
    lines += [Change("-", f"{one['name']} {one['type']}") for one in told["removed"]]
    lines += [Change("~", f"{one['name']} {one['from']} → {one['to']}") for one in told["changed"]]
    if told["reordered"]:
        lines.append(Change("~", f"in another order: {', '.join(told['reordered']['to'])}"))
    return lines


def _sql(before: str, after: str) -> list[Change]:
    lines = list(difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=3))[2:]
    return [
        Change(" ", "…", mono=True) if line.startswith("@@") else Change(line[0], line[1:], mono=True) for line in lines
    ]
