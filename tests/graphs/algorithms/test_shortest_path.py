"""The shortest path: a query whose text holds names of the graph alone, answered at once."""

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from paddock.graphs.algorithms.shape import shape_of
from paddock.graphs.algorithms.shortest_path import ShortestPath, shortest_path_of
from paddock.graphs.problems import Problem
from tests.graphs.algorithms.flights import copied, load
from tests.graphs.algorithms.test_requests import DEFINITIONS


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(load(tmp_path_factory.mktemp("flights")))


def path(**body: Any) -> ShortestPath:
    return shortest_path_of(body, shape_of(DEFINITIONS))


async def test_paths_are_answered_at_once(loaded: Path, tmp_path: Path) -> None:
    async with copied(loaded, tmp_path / "one") as flights:

        async def hops(**body: Any) -> Any:
            status, answer = await flights.post("/algo/shortest_path", **body)
            assert status == 200, answer
            assert answer["data"]["found"] is (answer["data"]["hops"] is not None)
            return answer["data"]["hops"]

        status, answer = await flights.post("/algo/shortest_path", source="OSL", target="GRZ", edge_types=["ROUTE"])
        assert status == 200
        assert [node["code"] for node in answer["data"]["path"]["_nodes"]] == ["OSL", "ZRH", "GRZ"]
        assert [edge["_type"] for edge in answer["data"]["path"]["_rels"]] == ["ROUTE", "ROUTE"]
        assert await hops(source="GRZ", target="OSL", edge_types=["ROUTE"]) is None
        assert await hops(source="OSL", target="GRZ", edge_types=["ROUTE"], max_hops=1) is None
        assert await hops(source="GRZ", target="GRZ") == 0
        assert await hops(source=7, target="GRZ") == 2
        assert await hops(source={"label": "Airline", "key": 8}, target="GRZ") == 3
        for field, body in (
            ("source", {"source": "XXX' OR true //", "target": "GRZ"}),
            ("target", {"source": "GRZ", "target": "XXX"}),
        ):
            status, answer = await flights.post("/algo/shortest_path", **body)
            assert (status, answer["error"]["code"]) == (422, "node_not_found")
            assert answer["error"]["details"]["field"] == field
        assert (await flights.running.client.get("/status")).json()["data"]["in_flight"] == 0


def test_keys_are_parameters_and_never_text() -> None:
    asked = path(source="a' //", target="b`", edge_types=["ROUTE"])
    assert "a'" not in asked.query()
    assert asked.parameters() == {"source": "a' //", "target": "b`"}
    assert "`ROUTE`* SHORTEST 1..30" in asked.query()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"target": "A"}, "source: It is missing"),
        ({"source": "A", "target": "B", "max_hops": 31}, "max_hops: A whole number from 1 to 30."),
        ({"source": "A", "target": "B", "max_hops": 0}, "max_hops: A whole number from 1 to 30."),
        ({"source": "A", "target": "B", "hops": 3}, "shortest_path has no such parameter"),
        ({"source": "A", "target": "B", "edge_types": ["NOWHERE"]}, "The graph has no edge type 'NOWHERE'"),
        ({"source": "A", "target": 7}, "target: The key of Airport is of type STRING; '7' is not."),
        ({"source": "A", "target": {"key": "B"}}, 'Write the key alone, or {"label": …, "key": …}.'),
        ({"source": "A", "target": {"label": "Port", "key": 1}}, "The graph has no label 'Port'"),
        ({"source": "A", "target": {"label": ["x"], "key": 1}}, "The graph has no label"),
        (
            {"source": {"label": "Airline", "key": True}, "target": "A"},
            "The key of Airline is of type INT64; 'True' is not.",
        ),
        ({"source": {"label": "Airline", "key": 1 << 63}, "target": "A"}, "The key of Airline is of type INT64"),
        ({"source": "\ud800", "target": "A"}, "is of type"),
        ({"source": {"label": "Plane", "key": "no uuid"}, "target": "A"}, "The key of Plane is of type UUID"),
    ],
)
def test_what_is_not_valid_is_refused(body: dict[str, Any], words: str) -> None:
    with pytest.raises(Problem) as refused:
        path(**body)
    assert (refused.value.status, refused.value.code) == (422, "invalid")
    assert words in refused.value.message


def test_where_the_label_is_not_clear_it_is_asked_for() -> None:
    definitions = {
        **DEFINITIONS,
        "edges": [*DEFINITIONS["edges"], {"type": "USES", "from": "Plane", "to": "Airport", "properties": []}],
    }
    with pytest.raises(Problem, match="It could be a key of Airport, Plane"):
        shortest_path_of({"source": str(uuid.uuid4()), "target": "A"}, shape_of(definitions))
