"""What a mapping says: which query gives which nodes and edges, column by column.

Position counts: a query's first column is the key (from and to of an edge), then come the properties in their order.
`checked` finds everything that is wrong at once, each at its field, and gives back types as they are written.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from paddock import declared_types as types
from paddock.exports.model import MAX_SQL, DeclaredColumn, Section
from paddock.jobs.enqueueing import MAX_BATCH
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject

MAX_NAME = 64
MAX_PROPERTIES = 100
# A snapshot makes one job for each, in one submission.
MAX_DEFINITIONS = MAX_BATCH
MOST_PROBLEMS = 100

NAME = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{MAX_NAME - 1}}}\Z")
EDGE_TYPE = re.compile(rf"[A-Z][A-Z0-9_]{{0,{MAX_NAME - 1}}}\Z")
NAME_RULE = f"A letter, then letters, digits and underscores, at most {MAX_NAME} in all."
EDGE_TYPE_RULE = f"A capital letter, then capital letters, digits and underscores, at most {MAX_NAME} in all."

Name = Annotated[str, Field(description=NAME_RULE)]
Type = Annotated[
    str, Field(description="STRING, INT8 to INT64, FLOAT, DOUBLE, DECIMAL(p,s), BOOL, DATE, TIMESTAMP, UUID, BLOB, …")
]
Problem = dict[str, str]


class _Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Property(_Shape):
    name: Name
    type: Type


class Key(_Shape):
    name: Name
    type: Annotated[str, Field(description=f"One of {', '.join(types.KEYS)}.")]


class Node(_Shape):
    label: Name
    sql: str
    primary_key: Key
    properties: list[Property] = Field(default_factory=list)


class Edge(_Shape):
    type: Annotated[str, Field(description=EDGE_TYPE_RULE)]
    from_node: Name
    to_node: Name
    sql: str
    from_key: Name
    to_key: Name
    properties: list[Property] = Field(default_factory=list)


class Definition(_Shape):
    nodes: list[Node]
    edges: list[Edge] = Field(default_factory=list)

    def dumped(self) -> JsonObject:
        return self.model_dump(mode="json")


class InvalidDefinition(Refused):
    status = 422

    def __init__(self, problems: Sequence[Problem]) -> None:
        listed = " ".join(f"{problem['field']}: {problem['message']}" for problem in problems[:5])
        super().__init__(
            "invalid", f"The mapping is not valid: {listed}", details={"fields": list(problems[:MOST_PROBLEMS])}
        )


class Entity(_Shape):
    """One export of a mapping: what it is called, its query, and the columns of its files."""

    section: Section
    name: str
    sql: str
    columns: list[DeclaredColumn]


def entities(mapping: Definition) -> list[Entity]:
    """Nodes first, in the mapping's order. An edge's key columns have the types of the keys they point to."""
    keys = {node.label: node.primary_key for node in mapping.nodes}
    found = [
        Entity(section="nodes", name=node.label, sql=node.sql, columns=_columns([node.primary_key, *node.properties]))
        for node in mapping.nodes
    ]
    for edge in mapping.edges:
        ends = [
            Key(name=name, type=keys[label].type)
            for name, label in ((edge.from_key, edge.from_node), (edge.to_key, edge.to_node))
        ]
        columns = _columns([*ends, *edge.properties])
        found.append(Entity(section="edges", name=edge.type, sql=edge.sql, columns=columns))
    return found


def _columns(parts: Sequence[Key | Property]) -> list[DeclaredColumn]:
    return [DeclaredColumn(name=part.name, type=part.type) for part in parts]


def field_of_column(mapping: Definition, section: Section, name: str, position: int) -> str:
    """Where in the mapping the column at this position of an entity is declared."""
    declared: Sequence[Node | Edge] = mapping.nodes if section == "nodes" else mapping.edges
    place = next(place for place, entity in enumerate(declared) if _name(entity) == name)
    keys = ("primary_key",) if section == "nodes" else ("from_key", "to_key")
    if position < len(keys):
        return f"{section}.{place}.{keys[position]}"
    within = position - len(keys)
    if within < len(declared[place].properties):
        return f"{section}.{place}.properties.{within}"
    return f"{section}.{place}.sql"  # the query gives more columns than are declared


def checked(mapping: Definition) -> Definition:
    found = list(problems(mapping))
    if found:
        raise InvalidDefinition(found)
    return _as_written(mapping)


def problems(mapping: Definition) -> Iterator[Problem]:
    if not mapping.nodes:
        yield _problem("nodes", "A mapping has at least one node.")
    if len(mapping.nodes) + len(mapping.edges) > MAX_DEFINITIONS:
        yield _problem("nodes", f"A mapping has at most {MAX_DEFINITIONS:,} nodes and edges.")
        return
    # One space for both: a graph database has no label and edge type of the same name.
    labels: dict[str, str] = {}
    for place, node in enumerate(mapping.nodes):
        yield from _node_problems(f"nodes.{place}", node, labels)
    for place, edge in enumerate(mapping.edges):
        yield from _edge_problems(f"edges.{place}", edge, labels, {node.label for node in mapping.nodes})


def _node_problems(at: str, node: Node, labels: dict[str, str]) -> Iterator[Problem]:
    if not NAME.match(node.label):
        yield _problem(f"{at}.label", NAME_RULE)
    yield from _repeated(f"{at}.label", node.label, labels)
    yield from _sql_problems(at, node.sql)
    columns: dict[str, str] = {}
    yield from _column_name(f"{at}.primary_key.name", node.primary_key.name, columns)
    yield from _key_type(f"{at}.primary_key.type", node.primary_key.type)
    yield from _property_problems(at, node.properties, columns)


def _edge_problems(at: str, edge: Edge, taken: dict[str, str], labels: set[str]) -> Iterator[Problem]:
    if not EDGE_TYPE.match(edge.type):
        yield _problem(f"{at}.type", EDGE_TYPE_RULE)
    yield from _repeated(f"{at}.type", edge.type, taken)
    for field, label in (("from_node", edge.from_node), ("to_node", edge.to_node)):
        if label not in labels:
            yield _problem(f"{at}.{field}", f"No node of this mapping has the label {_quoted(label)}.")
    yield from _sql_problems(at, edge.sql)
    columns: dict[str, str] = {}
    yield from _column_name(f"{at}.from_key", edge.from_key, columns)
    yield from _column_name(f"{at}.to_key", edge.to_key, columns)
    yield from _property_problems(at, edge.properties, columns)


def _property_problems(at: str, properties: Sequence[Property], columns: dict[str, str]) -> Iterator[Problem]:
    if len(properties) > MAX_PROPERTIES:
        yield _problem(f"{at}.properties", f"At most {MAX_PROPERTIES} properties, and these are {len(properties):,}.")
        return
    for place, declared in enumerate(properties):
        yield from _column_name(f"{at}.properties.{place}.name", declared.name, columns)
        try:
            types.parse(declared.type)
        except types.BadType as bad:
            yield _problem(f"{at}.properties.{place}.type", str(bad))


def _column_name(at: str, name: str, columns: dict[str, str]) -> Iterator[Problem]:
    if not NAME.match(name):
        yield _problem(at, NAME_RULE)
    yield from _repeated(at, name, columns)


def _key_type(at: str, text: str) -> Iterator[Problem]:
    if text.strip().upper() not in types.KEYS:
        yield _problem(at, f"A key is one of {', '.join(types.KEYS)}.")


def _sql_problems(at: str, sql: str) -> Iterator[Problem]:
    if not sql.strip():
        yield _problem(f"{at}.sql", "Write a query.")
    elif len(sql) > MAX_SQL:
        yield _problem(f"{at}.sql", f"A query has at most {MAX_SQL:,} characters.")


def _repeated(at: str, name: str, known: dict[str, str]) -> Iterator[Problem]:
    """Without regard to case: files, folders and graph databases may have none."""
    first = known.setdefault(name.lower(), at)
    if first != at:
        yield _problem(at, f"{_quoted(name)} stands at {first} already; upper and lower case count as the same.")


def _problem(field: str, message: str) -> Problem:
    return {"field": field, "message": message}


def _quoted(text: str) -> str:
    return repr(text if len(text) <= MAX_NAME else f"{text[:MAX_NAME]}…")


def _as_written(mapping: Definition) -> Definition:
    """With each type in its one spelling, so that `decimal( 10, 2 )` is no change of `DECIMAL(10,2)`."""
    return Definition(
        nodes=[
            node.model_copy(
                update={
                    "primary_key": Key(name=node.primary_key.name, type=str(types.parse(node.primary_key.type))),
                    "properties": _spelt(node.properties),
                }
            )
            for node in mapping.nodes
        ],
        edges=[edge.model_copy(update={"properties": _spelt(edge.properties)}) for edge in mapping.edges],
    )


def _spelt(properties: Sequence[Property]) -> list[Property]:
    return [Property(name=declared.name, type=str(types.parse(declared.type))) for declared in properties]


def _name(entity: Node | Edge) -> str:
    return entity.label if isinstance(entity, Node) else entity.type


def diff(before: Definition, after: Definition) -> JsonObject:
    """What was added, removed and changed. The order of properties is part of them: position counts."""
    return {
        "nodes": _compared(before.nodes, after.nodes, "label"),
        "edges": _compared(before.edges, after.edges, "type"),
    }


def _compared(before: Sequence[Node | Edge], after: Sequence[Node | Edge], key: str) -> JsonObject:
    old, new = {_name(entity): entity for entity in before}, {_name(entity): entity for entity in after}
    changed = [{key: name, **found} for name in new if name in old and (found := _changes(old[name], new[name]))]
    return {
        "added": [entity.model_dump(mode="json") for name, entity in new.items() if name not in old],
        "removed": [entity.model_dump(mode="json") for name, entity in old.items() if name not in new],
        "changed": changed,
    }


def _changes(old: Node | Edge, new: Node | Edge) -> JsonObject:
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    found: JsonObject = {
        field: {"from": before[field], "to": after[field]}
        for field in after
        if field != "properties" and before[field] != after[field]
    }
    if before["properties"] != after["properties"]:
        found["properties"] = _property_changes(old.properties, new.properties)
    return found


def _property_changes(before: Sequence[Property], after: Sequence[Property]) -> JsonObject:
    old, new = {p.name: p.type for p in before}, {p.name: p.type for p in after}
    stayed: Mapping[str, list[str]] = {
        "from": [name for name in old if name in new],
        "to": [name for name in new if name in old],
    }
    return {
        "added": [{"name": name, "type": type} for name, type in new.items() if name not in old],
        "removed": [{"name": name, "type": type} for name, type in old.items() if name not in new],
        "changed": [
            {"name": name, "from": old[name], "to": new[name]} for name in new if name in old and old[name] != new[name]
        ],
        "reordered": stayed if stayed["from"] != stayed["to"] else None,
    }
