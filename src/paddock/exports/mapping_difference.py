"""What changed between two versions of a mapping, line by line, from the answer of `GET /api/mappings/{id}/diff`."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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


def difference(found: Mapping[str, Any]) -> list[Changed]:
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
    if lines and lines[0].startswith(("@@ -1 ", "@@ -1,")):
        lines = lines[1:]  # nothing is left out before the first line
    return [
        Change(" ", "…", mono=True) if line.startswith("@@") else Change(line[0], line[1:], mono=True) for line in lines
    ]
