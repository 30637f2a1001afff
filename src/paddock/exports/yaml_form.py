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

import textwrap
from collections.abc import Mapping
from typing import Any

import yaml

from paddock.jobs.model import JsonObject

TOP = ("name", "description", "ttl", "nodes", "edges")
# What stands first in an entry; the query is last.
FIRST_OF = {"nodes": ("label", "primary_key"), "edges": ("type", "from_node", "to_node", "from_key", "to_key")}
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
    for section in FIRST_OF:
        if section == "nodes" or mapping.get(section):
            shown[section] = [_ordered(entity, FIRST_OF[section]) for entity in mapping[section]]
    return _dumped(shown)


def add(text: str, section: str, entity: Mapping[str, Any]) -> str:
    """The text with one more node or edge at the end of its list; nothing else of it is touched."""
    before = read(text) if text.strip() else {}
    listed = before.get(section) or []
    if not isinstance(listed, list):
        raise BadFile(f"`{section}` is a list.")
    wanted = {**before, section: [*listed, _plain(entity)]}
    item = _dumped([_ordered(entity, FIRST_OF[section])])
    for found in (_after_the_last(text, section, item), f"{text.rstrip()}\n{section}:\n{_indented(item, 2)}".lstrip()):
        if found is not None and _says(found, wanted):
            return found
    raise BadFile(f"Write `{section}:` as a list with one entry under the other; then one can be added.")


def _after_the_last(text: str, section: str, item: str) -> str | None:
    """None where there is no list that is written line by line."""
    top = yaml.compose(text, Loader=yaml.BaseLoader) if text.strip() else None
    values = top.value if isinstance(top, yaml.MappingNode) else []
    listed = next((value for key, value in values if key.value == section), None)
    if not isinstance(listed, yaml.SequenceNode) or listed.flow_style or not listed.value:
        return None
    lines = text.splitlines()
    end = listed.end_mark.line + (1 if listed.end_mark.column > 0 else 0)
    while not lines[end - 1].strip() or lines[end - 1].startswith("#"):  # what stands before the next list
        end -= 1
    return "\n".join([*lines[:end], _indented(item, listed.start_mark.column).rstrip("\n"), *lines[end:], ""])


def _indented(text: str, by: int) -> str:
    return textwrap.indent(text, " " * by)


def _says(text: str, wanted: Mapping[str, Any]) -> bool:
    try:
        return read(text) == wanted
    except BadFile:
        return False


def _plain(entity: Mapping[str, Any]) -> JsonObject:
    return {name: value for name, value in entity.items() if value}


def _dumped(value: Any) -> str:
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=2**31)


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
