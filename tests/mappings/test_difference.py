"""What changed between two versions of a mapping, as `paddock mappings diff` prints it and the page draws it."""

from typing import Any

from paddock.exports.commands.mapping_words import changed_lines
from paddock.exports.mapping import Definition, diff


def definition(*nodes: dict[str, Any]) -> Definition:
    return Definition.model_validate({"nodes": nodes, "edges": []})


def node(label: str, sql: str, *properties: tuple[str, str], key: str = "STRING") -> dict[str, Any]:
    return {
        "label": label,
        "sql": sql,
        "primary_key": {"name": "code", "type": key},
        "properties": [{"name": name, "type": type} for name, type in properties],
    }


def test_each_change_is_a_line_with_its_sign() -> None:
    before = definition(
        node("Airport", "SELECT code, city, miles\nFROM a", ("city", "STRING"), ("miles", "DOUBLE")),
        node("Town", "SELECT code FROM t"),
    )
    after = definition(
        node("Airport", "SELECT code, miles, x\nFROM a", ("miles", "INT32"), ("x", "BOOL"), key="INT64"),
        node("Plane", "SELECT code FROM p"),
    )
    assert sorted(changed_lines(diff(before, after))) == sorted(
        [
            "+ node Plane",
            "    + code STRING",
            "    + SELECT code FROM p",
            "- node Town",
            "    - code STRING",
            "    - SELECT code FROM t",
            "~ node Airport",
            "    - SELECT code, city, miles",
            "    + SELECT code, miles, x",
            "      FROM a",
            "    ~ key code STRING → code INT64",
            "    + x BOOL",
            "    - city STRING",
            "    ~ miles DOUBLE → INT32",
        ]
    )


def test_the_same_has_no_lines() -> None:
    same = definition(node("Airport", "SELECT code FROM a"))
    assert list(changed_lines(diff(same, same))) == []


def test_lines_that_are_left_out_are_three_dots() -> None:
    kept = [f"  {letter}," for letter in "abcdefghijkl"]
    before = definition(node("Airport", "\n".join(["SELECT", *kept, "  code FROM a"])))
    after = definition(node("Airport", "\n".join(["SELECT", *kept, "  code FROM b"])))
    lines = list(changed_lines(diff(before, after)))
    assert lines[:2] == ["~ node Airport", "      …"]
    assert lines[-2:] == ["    -   code FROM a", "    +   code FROM b"]
