"""What a mapping may say: every rule, and where it is said that it was broken."""

import copy
from typing import Any

import pytest

from paddock.exports.mapping import Definition, checked, diff, entities, field_of_column, problems
from tests.snapshots.making import AIRPORTS


def changed(**changes: Any) -> dict[str, Any]:
    """The airports with a value put at each path, as in nodes__0__label."""
    mapping = copy.deepcopy(AIRPORTS)
    for path, value in changes.items():
        *way, last = path.split("__")
        place: Any = mapping
        for step in way:
            place = place[int(step) if step.isdigit() else step]
        place[int(last) if last.isdigit() else last] = value
    return mapping


def found(mapping: dict[str, Any]) -> dict[str, str]:
    return {problem["field"]: problem["message"] for problem in problems(Definition.model_validate(mapping))}


def test_the_airports_are_fine() -> None:
    assert found(AIRPORTS) == {}


LONG = "a" * 64


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("nodes__0__label", "1st"),
        ("nodes__0__label", "_x"),
        ("nodes__0__label", "Städte"),
        ("nodes__0__label", "a b"),
        ("nodes__0__label", "a\n"),
        ("nodes__0__label", ""),
        ("nodes__0__label", LONG + "a"),
        ("nodes__1__label", "airport"),  # as nodes.0, but for its case
        ("nodes__0__primary_key__name", "../code"),
        ("nodes__0__primary_key__type", "INT32"),
        ("nodes__0__primary_key__type", "DECIMAL(10,2)"),
        ("nodes__0__properties__0__name", "CODE"),  # the key's name
        ("nodes__0__properties__0__name", "na-me"),
        ("nodes__0__properties__0__type", "VARCHAR"),
        ("nodes__0__properties__0__type", "DECIMAL(39,2)"),
        ("nodes__0__properties__0__type", "LIST(STRING"),
        ("nodes__0__sql", "  \n"),
        ("nodes__0__sql", "x" * 200_001),
        ("edges__0__type", "Route"),
        ("edges__0__type", "9"),
        ("edges__0__type", "R" * 65),
        ("edges__1__type", "ROUTE"),
        ("edges__0__from_node", "airport"),  # labels are named as they are written
        ("edges__0__to_node", "Nowhere"),
        ("edges__0__from_key", "1"),
        ("edges__0__to_key", "ORIGIN"),  # as from_key
        ("edges__0__properties__0__name", "target"),
        ("edges__0__sql", ""),
    ],
)
def test_a_broken_rule_is_told_at_its_field(path: str, value: str) -> None:
    field = path.replace("__", ".")
    assert field in found(changed(**{path: value}))


@pytest.mark.parametrize("type", ["STRING", "INT64", "DATE", "UUID", " uuid "])
def test_a_key_is_one_of_four_types(type: str) -> None:
    assert found(changed(nodes__0__primary_key__type=type)) == {}


def test_names_of_64_are_fine() -> None:
    assert found(changed(nodes__0__properties__0__name=LONG, edges__0__type="R" * 64)) == {}


def test_at_least_one_node() -> None:
    assert list(found({"nodes": []})) == ["nodes"]


def test_at_most_a_hundred_properties_and_a_thousand_definitions() -> None:
    properties = [{"name": f"p{n}", "type": "INT8"} for n in range(100)]
    assert found(changed(nodes__0__properties=properties)) == {}
    too_many = [*properties, {"name": "one", "type": "INT8"}]
    assert list(found(changed(nodes__0__properties=too_many))) == ["nodes.0.properties"]
    nodes = [{**AIRPORTS["nodes"][1], "label": f"n{n}"} for n in range(1_001)]
    assert list(found({"nodes": nodes})) == ["nodes"]


def test_everything_wrong_is_told_at_once() -> None:
    bad = changed(
        nodes__0__label="1",
        nodes__0__properties__0__type="TEXT",
        nodes__1__primary_key__type="BOOL",
        edges__1__type="flies",
    )
    fields = set(found(bad))
    assert {"nodes.0.label", "nodes.0.properties.0.type", "nodes.1.primary_key.type", "edges.1.type"} <= fields
    assert {"edges.0.from_node", "edges.0.to_node", "edges.1.to_node"} <= fields, "Airport is not there any more"


def test_types_have_one_spelling() -> None:
    loose = changed(edges__0__properties__0__type=" decimal( 10 ,2)", nodes__0__primary_key__type="string")
    assert checked(Definition.model_validate(loose)) == Definition.model_validate(AIRPORTS)


def test_keys_come_first_and_edges_have_the_types_of_the_keys_they_point_to() -> None:
    shown = {e.name: [(c.name, c.type) for c in e.columns] for e in entities(Definition.model_validate(AIRPORTS))}
    assert list(shown) == ["Airport", "Airline", "ROUTE", "FLIES_TO"]
    assert shown["Airport"] == [("code", "STRING"), ("name", "STRING")]
    assert shown["ROUTE"] == [("origin", "STRING"), ("target", "STRING"), ("miles", "DECIMAL(10,2)")]
    assert shown["FLIES_TO"] == [("airline", "INT64"), ("airport", "STRING")]


def test_a_column_is_found_where_it_is_declared() -> None:
    mapping = Definition.model_validate(AIRPORTS)
    assert field_of_column(mapping, "nodes", "Airport", 0) == "nodes.0.primary_key"
    assert field_of_column(mapping, "nodes", "Airport", 1) == "nodes.0.properties.0"
    assert field_of_column(mapping, "edges", "ROUTE", 1) == "edges.0.to_key"
    assert field_of_column(mapping, "edges", "ROUTE", 2) == "edges.0.properties.0"
    assert field_of_column(mapping, "edges", "FLIES_TO", 2) == "edges.1.sql", "one more than declared"


def compared(after: dict[str, Any]) -> dict[str, Any]:
    return diff(Definition.model_validate(AIRPORTS), Definition.model_validate(after))


NOTHING: dict[str, Any] = {"added": [], "removed": [], "changed": []}


class TestDiff:
    def test_of_the_same(self) -> None:
        assert compared(AIRPORTS) == {"nodes": NOTHING, "edges": NOTHING}

    def test_of_the_order_of_nodes_says_nothing(self) -> None:
        assert compared({**AIRPORTS, "nodes": AIRPORTS["nodes"][::-1]}) == {"nodes": NOTHING, "edges": NOTHING}

    def test_names_what_came_and_went(self) -> None:
        found = compared({**AIRPORTS, "edges": [{**AIRPORTS["edges"][0], "type": "PATH"}, AIRPORTS["edges"][1]]})
        assert [edge["type"] for edge in found["edges"]["added"]] == ["PATH"]
        assert [edge["type"] for edge in found["edges"]["removed"]] == ["ROUTE"]
        assert found["nodes"] == NOTHING

    def test_shows_changes_of_queries_keys_and_ends(self) -> None:
        found = compared(changed(nodes__0__sql="SELECT 1, 2", edges__0__to_node="Airline", edges__0__from_key="start"))
        assert found["nodes"]["changed"] == [
            {"label": "Airport", "sql": {"from": "SELECT code, name FROM airports", "to": "SELECT 1, 2"}}
        ]
        assert found["edges"]["changed"] == [
            {
                "type": "ROUTE",
                "to_node": {"from": "Airport", "to": "Airline"},
                "from_key": {"from": "origin", "to": "start"},
            }
        ]

    def test_shows_changes_of_properties_and_of_their_order(self) -> None:
        before = changed(nodes__0__properties=[{"name": n, "type": "INT8"} for n in ("a", "b", "c")])
        after = changed(
            nodes__0__properties=[
                {"name": "c", "type": "INT8"},
                {"name": "b", "type": "INT16"},
                {"name": "d", "type": "BOOL"},
            ]
        )
        [found] = diff(Definition.model_validate(before), Definition.model_validate(after))["nodes"]["changed"]
        assert found["properties"] == {
            "added": [{"name": "d", "type": "BOOL"}],
            "removed": [{"name": "a", "type": "INT8"}],
            "changed": [{"name": "b", "from": "INT8", "to": "INT16"}],
            "reordered": {"from": ["b", "c"], "to": ["c", "b"]},
        }
