"""The graph view draws what is a node or a relationship in an answer, and nothing else, whatever the instance answers."""

from typing import Any

import pytest

from paddock.instances.pages.graph_of import MOST_EDGES, MOST_NODES, graph_of


def node(id: str, label: str = "Airport", **properties: Any) -> dict[str, Any]:
    return {"_id": id, "_label": label, **properties}


def edge(id: str, start: str, end: str, type: str = "ROUTE", **properties: Any) -> dict[str, Any]:
    return {"_id": id, "_type": type, "_src": start, "_dst": end, **properties}


def test_nodes_and_the_relationships_between_them_are_drawn() -> None:
    graph = graph_of([[node("0:1", code="A", city="Aba"), edge("2:1", "0:1", "0:2", flights=3), node("0:2", code="B")]])
    assert graph.as_json() == {
        "nodes": [
            {"id": "0:1", "label": "Airport", "title": "A", "key": '"A"', "properties": {"code": "A", "city": "Aba"}},
            {"id": "0:2", "label": "Airport", "title": "B", "key": '"B"', "properties": {"code": "B"}},
        ],
        "edges": [{"id": "2:1", "type": "ROUTE", "from": "0:1", "to": "0:2", "properties": {"flights": 3}}],
        "found": 2,
    }


def test_numbers_that_a_browser_would_round_are_shown_and_handed_back_as_they_are() -> None:
    [drawn] = graph_of([[node("0:1", number=2**53 + 1, small=7)]]).as_json()["nodes"]
    assert (drawn["key"], drawn["title"]) == ("9007199254740993", "9007199254740993")
    assert drawn["properties"] == {"number": "9007199254740993", "small": 7}


def test_a_node_is_drawn_once_however_often_it_is_answered() -> None:
    graph = graph_of([[node("0:1", code="A")], [node("0:1", code="A")], [[node("0:1", code="A")]]])
    assert (len(graph.nodes), graph.found) == (1, 1)


def test_of_many_nodes_the_first_are_drawn_and_all_are_counted() -> None:
    graph = graph_of([[node(f"0:{n}", code=str(n))] for n in range(12_410)])
    assert len(graph.nodes) == MOST_NODES == 300
    assert graph.found == 12_410
    assert [*graph.nodes][-1] == "0:299"


def test_no_more_relationships_are_drawn_than_can_be_seen() -> None:
    rows = [[node("0:1"), node("0:2")], *([edge(f"2:{n}", "0:1", "0:2")] for n in range(20_000))]
    assert len(graph_of(rows).edges) == MOST_EDGES


def test_a_relationship_without_both_its_ends_is_left_out() -> None:
    graph = graph_of([[node("0:1"), edge("2:1", "0:1", "0:9"), edge("2:2", "0:9", "0:1"), edge("2:3", "0:1", "0:1")]])
    assert [*graph.edges] == ["2:3"]


def test_the_nodes_and_relationships_of_a_path_are_drawn() -> None:
    path = {
        "_nodes": [node("0:1"), node("0:2"), node("0:3")],
        "_rels": [edge("2:1", "0:1", "0:2"), edge("2:2", "0:2", "0:3")],
    }
    graph = graph_of([[path, 2]])
    assert ([*graph.nodes], [*graph.edges]) == (["0:1", "0:2", "0:3"], ["2:1", "2:2"])


def test_nodes_in_lists_of_lists_are_found() -> None:
    assert [*graph_of([[[[node("0:1")], [node("0:2")]]]]).nodes] == ["0:1", "0:2"]


def test_a_node_is_called_by_its_name_else_by_its_key() -> None:
    rows = [
        [node("0:1", code="A", name="Aba")],
        [node("0:2", key=7, city="Bebe")],
        [node("0:3")],
        [node("0:4", name="", title="T")],
        [node("0:5", name="x" * 100_000)],
    ]
    assert [one["title"] for one in graph_of(rows).nodes.values()] == ["Aba", "7", "0:3", "T", "x" * 40]


@pytest.mark.parametrize(
    "value",
    [
        None,
        17,
        "0:1",
        True,
        {},
        {"_id": "0:1"},
        {"_id": 1, "_label": "A"},
        {"_id": "0:1", "_label": None},
        {"_id": {"offset": 1}, "_label": ["A"]},
        {"_id": "2:1", "_type": "R", "_src": 1, "_dst": 2},
        {"_nodes": 5, "_rels": "none"},
        {"_nodes": None},
        {"_nodes": {"_nodes": {"_nodes": []}}},
        {"other": {"_id": "0:1", "_label": "A"}},
    ],
)
def test_what_is_no_node_is_left_out(value: Any) -> None:
    graph = graph_of([[value], value])
    assert graph.as_json() == {"nodes": [], "edges": [], "found": 0}


def test_an_answer_of_any_depth_is_read() -> None:
    deep: Any = node("0:1")
    for _ in range(50_000):
        deep = [deep]
    assert [*graph_of([deep]).nodes] == ["0:1"]


def test_of_a_cut_answer_the_nodes_were_not_all_counted() -> None:
    assert graph_of([], cut=True).as_json()["cut"] is True
