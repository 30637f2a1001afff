"""What cannot be done is refused before anything runs, with a sentence that says what would be right."""

from typing import Any

import pytest

from paddock.graphs.algorithms.shape import Shape, shape_of, with_result
from paddock.graphs.algorithms.table import ALGORITHMS
from paddock.graphs.algorithms.validating import Task, algorithm_named, task_of
from paddock.graphs.problems import Problem

DEFINITIONS: dict[str, Any] = {
    "nodes": [
        {
            "label": "Airport",
            "key": {"name": "code", "type": "STRING"},
            "properties": [{"name": "city", "type": "STRING"}],
        },
        {"label": "Airline", "key": {"name": "number", "type": "INT64"}, "properties": []},
        {"label": "Plane", "key": {"name": "id", "type": "UUID"}, "properties": []},
    ],
    "edges": [
        {
            "type": "ROUTE",
            "from": "Airport",
            "to": "Airport",
            "properties": [{"name": "km", "type": "DECIMAL(10,2)"}, {"name": "note", "type": "STRING"}],
        },
        {"type": "FLIES", "from": "Airline", "to": "Airport", "properties": []},
    ],
}


def task(name: str, shape: Shape | None = None, **body: Any) -> Task:
    return task_of(algorithm_named(name), body, shape or shape_of(DEFINITIONS))


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("pagerank", {"damping": 1.1}, "damping: A number from 0 to 1."),
        ("pagerank", {"damping": "0.5"}, "damping: A number from 0 to 1."),
        ("pagerank", {"damping": True}, "damping: A number from 0 to 1."),
        ("pagerank", {"damping": float("nan")}, "damping: A number from 0 to 1."),
        ("pagerank", {"damping": 10**400}, "damping: A number from 0 to 1."),
        ("pagerank", {"tolerance": 0}, "tolerance: A number above 0 and at most 1."),
        ("pagerank", {"max_iterations": 0}, "max_iterations: A whole number from 1 to 10,000."),
        ("pagerank", {"max_iterations": 2.5}, "max_iterations: A whole number from 1 to 10,000."),
        ("pagerank", {"timeout_ms": 999}, "timeout_ms: A whole number from 1,000 to 7,200,000."),
        ("pagerank", {"dampng": 0.5}, "Did you mean damping?"),
        ("louvain", {"resolution": -1}, "resolution: A number above 0 and at most 100."),
        ("degree", {"direction": "up"}, "direction: It is one of both, outgoing, incoming."),
        ("betweenness", {"samples": 0}, "samples: A whole number from 1 to 100,000."),
        ("wcc", {"node_labels": ["Port"]}, "The graph has no label 'Port'; it has Airport, Airline, Plane."),
        ("wcc", {"node_labels": []}, "A list with at least one label"),
        ("wcc", {"node_labels": "Airport"}, "A list with at least one label"),
        ("wcc", {"edge_types": [["ROUTE"]]}, "A list with at least one edge type"),
        ("wcc", {"edge_types": ["route"]}, "The graph has no edge type 'route'; it has ROUTE, FLIES."),
        (
            "wcc",
            {"edge_types": ["FLIES"], "node_labels": ["Airport"]},
            "FLIES goes from Airline to Airport, and Airline is not among node_labels.",
        ),
        ("wcc", {"weight_property": "km"}, "Weakly connected components takes no weights; leave it out."),
        ("degree", {"weight_property": "km"}, "FLIES has no property 'km'; it has none."),
        (
            "degree",
            {"weight_property": "note", "edge_types": ["ROUTE"]},
            "note of ROUTE is STRING; a weight is a number",
        ),
        ("degree", {"weight_property": ["km"], "edge_types": ["ROUTE"]}, "ROUTE has no property"),
        ("degree", {"weight_property": "km", "node_labels": ["Plane"]}, "No edge type takes part"),
        ("degree", {"write_property": "_id"}, "names that begin with '_' are reserved"),
        ("degree", {"write_property": "a`b"}, "A letter, then letters, digits and underscores"),
        ("degree", {"write_property": ""}, "A letter, then letters, digits and underscores"),
        ("degree", {"write_property": "x" * 64}, "at most 63 in all"),
        ("degree", {"write_property": 7}, "A letter, then letters, digits and underscores"),
    ],
)
def test_what_is_not_valid_is_refused(name: str, body: dict[str, Any], words: str) -> None:
    with pytest.raises(Problem) as refused:
        task(name, **body)
    assert (refused.value.status, refused.value.code) == (422, "invalid")
    assert words in refused.value.message


def test_an_unknown_algorithm_lists_those_there_are() -> None:
    with pytest.raises(Problem) as refused:
        algorithm_named("page_rank")
    assert (refused.value.status, refused.value.code) == (422, "unknown_algorithm")
    assert all(name in refused.value.message for name in ALGORITHMS)
    assert len(ALGORITHMS) == 10


@pytest.mark.parametrize("name", ["city", "CITY", "code", "number", "id"])
def test_a_property_of_the_mapping_is_never_overwritten(name: str) -> None:
    with pytest.raises(Problem) as refused:
        task("degree", node_labels=["Airport"], write_property=name)
    assert (refused.value.status, refused.value.code) == (409, "property_of_mapping")


def test_what_was_left_out_has_its_defaults() -> None:
    everything = task("pagerank")
    assert everything.parameters == {"damping": 0.85, "max_iterations": 100, "tolerance": 1e-8}
    assert list(everything.keys) == ["Airport", "Airline", "Plane"]
    assert [edge for edge, _, _ in everything.edges] == ["ROUTE", "FLIES"]
    assert (everything.property, everything.type, everything.timeout_ms) == ("pagerank", "DOUBLE", 1_800_000)


def test_labels_and_edge_types_are_found_from_each_other() -> None:
    assert list(task("wcc", edge_types=["ROUTE"]).keys) == ["Airport"]
    assert [edge for edge, _, _ in task("wcc", node_labels=["Airport"]).edges] == ["ROUTE"]
    assert task("wcc", node_labels=["Plane"]).edges == []


def test_weights_make_degrees_floating() -> None:
    assert task("degree", edge_types=["ROUTE"]).type == "INT64"
    assert task("degree", edge_types=["ROUTE"], weight_property="km").type == "DOUBLE"


def test_a_result_replaces_the_one_before_on_all_labels() -> None:
    once = with_result(DEFINITIONS, ["Airport", "Plane"], "Score", "INT64", "degree")
    assert task("degree", shape_of(once), node_labels=["Plane"], write_property="score").replaces == [
        ("Airport", "Score"),
        ("Plane", "Score"),
    ]
    twice = with_result(once, ["Plane"], "score", "DOUBLE", "pagerank")
    assert [node["properties"] for node in twice["nodes"]] == [
        [{"name": "city", "type": "STRING"}],
        [],
        [{"name": "score", "type": "DOUBLE", "made_by": "pagerank"}],
    ]
    assert DEFINITIONS["nodes"][2]["properties"] == []
