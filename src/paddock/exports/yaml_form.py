"""Mappings as files: what `paddock mappings apply -f` reads and `show -o yaml` writes. Comments are not kept.

    name: flights
    nodes:
      - label: Airport
        primary_key: {name: code, type: STRING}
        properties:
          - {name: city, type: STRING}
        sql: |-
          SELECT code, city
          FROM airports

Every value is text: a label NO is the word, not a truth value, and 1.0 stays as it was typed.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from paddock.jobs.model import JsonObject

TOP = ("name", "description", "ttl", "nodes", "edges")
NOTHING = ("", "~", "null", "Null", "NULL")


class BadFile(ValueError):
    """A sentence that says what is wrong, and in which line."""


def read(text: str) -> JsonObject:
    """What the file says, in the shape of the API; whether it is a good mapping is decided there."""
    try:
        loader = _Words(text)
        try:
            found = loader.get_single_data()
        finally:
            loader.dispose()
    except yaml.YAMLError as problem:
        raise BadFile(_sentence(problem)) from None
    except RecursionError:
        raise BadFile("It is nested too deep.") from None
    if not isinstance(found, dict):
        raise BadFile(f"A mapping file has {', '.join(TOP)} at its top.")
    for name in ("ttl", "description", "edges"):
        if found.get(name) in NOTHING:
            del found[name]
    for unknown in found.keys() - set(TOP):
        raise BadFile(f"There is no {unknown!r} at the top of a mapping file; there are {', '.join(TOP)}.")
    return found


def write(mapping: Mapping[str, Any]) -> str:
    """The file that says this mapping, as the API shows it; what it has beside a file's content is left out."""
    shown: JsonObject = {"name": mapping["name"]}
    shown |= {name: mapping[name] for name in ("description", "ttl") if mapping.get(name)}
    shown["nodes"] = [_ordered(node, ("label", "primary_key")) for node in mapping["nodes"]]
    if mapping.get("edges"):
        ends = ("type", "from_node", "to_node", "from_key", "to_key")
        shown["edges"] = [_ordered(edge, ends) for edge in mapping["edges"]]
    return yaml.dump(shown, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


def _ordered(entity: Mapping[str, Any], first: tuple[str, ...]) -> JsonObject:
    """The query last: it is the longest."""
    shown: JsonObject = {name: _inline(entity[name]) for name in first}
    if entity.get("properties"):
        shown["properties"] = [_Inline(declared) for declared in entity["properties"]]
    return {**shown, "sql": entity["sql"]}


def _inline(value: Any) -> Any:
    return _Inline(value) if isinstance(value, Mapping) else value


class _Inline(dict[str, Any]):
    """Written in one line."""


class _Words(yaml.BaseLoader):
    """Takes no word for anything but text, and no key twice: the first would be lost without a sound."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        known = set()
        for key, _ in node.value:
            word = key.value if isinstance(key, yaml.ScalarNode) else None
            if word is None or word in known:
                problem = "a key is one word" if word is None else f"{word!r} stands here twice"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
            known.add(word)
        return super().construct_mapping(node, deep)

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # its stub has no types
            raise yaml.MarkedYAMLError(problem="aliases (*name) are not used in mapping files", problem_mark=mark)
        return super().compose_node(parent, index)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        """Lists stand under their name, not beside it."""
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


def _in_one_line(dumper: yaml.SafeDumper, value: _Inline) -> yaml.MappingNode:
    return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=True)


_Dumper.add_representer(str, _text)
_Dumper.add_representer(_Inline, _in_one_line)


def _sentence(problem: yaml.YAMLError) -> str:
    if isinstance(problem, yaml.MarkedYAMLError) and problem.problem_mark is not None:
        return f"Line {problem.problem_mark.line + 1}: {problem.problem}."
    return f"This is not YAML: {problem}."
