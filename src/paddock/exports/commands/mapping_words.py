"""Mappings, their differences and the engine's verdicts on them, as `paddock mappings` shows them."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from paddock.cli.output import Column, Item, facts, field
from paddock.cli.wording import ago
from paddock.exports.mapping_difference import difference

if TYPE_CHECKING:
    from rich.console import RenderableType


def sheet(mapping: Item) -> "RenderableType":
    return facts(
        [
            ("name", mapping["name"]),
            ("id", mapping["id"]),
            ("description", mapping["description"]),
            ("owner", mapping["owner"]),
            ("version", f"{mapping['version']} of {mapping['latest']}"),
            (
                "changed",
                f"{ago(mapping['version_created_at'])} by {mapping['created_by']}: {mapping['change_description']}",
            ),
            ("expires", ago(mapping["expires_at"]) if mapping["expires_at"] else None),
            *(("node", _node(node)) for node in mapping["nodes"]),
            *(("edge", _edge(edge)) for edge in mapping["edges"]),
        ]
    )


def _node(node: Item) -> str:
    columns = [node["primary_key"], *node["properties"]]
    return f"{node['label']} ({', '.join(map(_column, columns))})"


def _edge(edge: Item) -> str:
    ends = f"{edge['from_node']} -{edge['type']}-> {edge['to_node']}"
    return f"{ends} ({', '.join([edge['from_key'], edge['to_key'], *map(_column, edge['properties'])])})"


def _column(declared: Item) -> str:
    return f"{declared['name']} {declared['type']}"


def changed_lines(answer: Item) -> Iterator[str]:
    for changed in difference(answer):
        yield f"{changed.sign} {changed.noun} {changed.name}"
        yield from (f"    {line.sign} {line.text}" for line in changed.lines)


def verdicts(answer: Item) -> Iterator[str]:
    for entity in answer["entities"]:
        yield f"{'✓' if entity['valid'] else '✗'} {entity['section'][:-1]} {entity['name']}"
        if entity["error"] is not None:
            yield f"    {entity['error']['message']} [{entity['error']['code']}]"
            if entity["error"]["hint"]:
                yield f"    {entity['error']['hint']}"
        for one in entity["mismatches"]:
            yield f"    {one['column']} ({one['field']}): expected {one['expected']}, found {one['found']}. {one['hint']}"
        for one in entity["warnings"]:
            yield f"    {one['column']} ({one['field']}): warning: {one['message']}"


COLUMNS: Sequence[Column] = (
    field("id"),
    field("name", wide=True),
    Column("version", lambda mapping: str(mapping["version"]), right=True),
    field("owner"),
    Column("changed", lambda mapping: ago(mapping["updated_at"])),
    field("description", wide=True),
)
VERSIONS: Sequence[Column] = (
    Column("version", lambda version: str(version["version"]), right=True),
    Column("created", lambda version: ago(version["created_at"])),
    field("created_by", "by"),
    Column("nodes", lambda version: str(version["nodes"]), right=True),
    Column("edges", lambda version: str(version["edges"]), right=True),
    field("change_description", "change", wide=True),
)
