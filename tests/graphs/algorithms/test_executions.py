"""Executions in a real server process: from request to property, one at a time, and killed at every step."""

import asyncio
import os
import signal
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.graphs.algorithms import references
from tests.graphs.algorithms.flights import AIRPORTS, HELD, ROUTES, Flights, copied, load, reopened
from tests.graphs.running import is_gone, until

RANKS = "MATCH (a:Airport) RETURN a.code, a.pagerank"
STEPS = ["reading", "computing", "writing", "written"]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return asyncio.run(load(tmp_path_factory.mktemp("flights")))


def expected_ranks() -> dict[str, float]:
    pairs = [(AIRPORTS.index(source), AIRPORTS.index(target)) for source, target in ROUTES]
    ranks = references.pagerank(len(AIRPORTS), pairs, [1.0] * len(pairs), 0.85, 200)
    return dict(zip(AIRPORTS, ranks, strict=True))


async def is_without_result(flights: Flights) -> None:
    assert await flights.properties("Airport") == ["city"]
    assert await flights.rows("MATCH (a:Airport) RETURN count(*)") == [[5]]
    answer = await flights.running.query(RANKS)
    assert answer.status_code == 422
    assert flights.left_behind() == []


async def test_pagerank_becomes_a_property_that_queries_see_and_a_restart_keeps(loaded: Path, tmp_path: Path) -> None:
    async with copied(loaded, tmp_path / "one") as flights:
        result = await flights.run("pagerank", edge_types=["ROUTE"], tolerance=1e-12)

        assert dict(await flights.rows(RANKS)) == pytest.approx(expected_ranks())
        assert await flights.properties("Airport") == ["city", "pagerank"]
        assert await flights.properties("Airline") == []
        assert (result["nodes"], result["edges"], result["property"]) == (5, 7, "pagerank")
        assert result["largest"][0] == {
            "label": "Airport",
            "key": "ZRH",
            "value": pytest.approx(expected_ranks()["ZRH"]),
        }
        assert result["figures"]["converged"] is True
        assert flights.left_behind() == []
    async with reopened(tmp_path / "one") as flights:
        assert dict(await flights.rows(RANKS)) == pytest.approx(expected_ranks())


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
async def test_a_killed_child_fails_the_execution_and_leaves_the_old_graph(
    loaded: Path, tmp_path: Path, step: str
) -> None:
    async with copied(loaded, tmp_path / "one", module=HELD) as flights:
        flights.hold_file.write_text(step)
        id = await flights.start("pagerank", edge_types=["ROUTE"], owner="ann")
        child = await flights.held_child()

        assert await flights.rows("MATCH (a:Airport) RETURN count(*)") == [[5]]
        status, refused = await flights.post("/algo/wcc")
        assert (status, refused["error"]["code"]) == (409, "RESOURCE_LOCKED")
        details = refused["error"]["details"]
        assert (details["holder"], details["algorithm"], details["execution_id"]) == ("ann", "pagerank", id)
        assert details["since"] == (await flights.execution(id))["started_at"]
        os.kill(child, signal.SIGKILL)
        ended = await flights.ended(id)

        assert ended["status"] == "failed"
        assert ended["error"]["code"] == "algorithm_crashed"
        assert "by signal 9" in ended["error"]["message"]
        await is_without_result(flights)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["computing", "writing"])
async def test_a_cancelled_execution_is_gone_with_its_child_and_leaves_the_old_graph(
    loaded: Path, tmp_path: Path, step: str
) -> None:
    async with copied(loaded, tmp_path / "one", module=HELD) as flights:
        flights.hold_file.write_text(step)
        id = await flights.start("pagerank", edge_types=["ROUTE"])
        child = await flights.held_child()

        status, answer = await flights.post(f"/algo/executions/{id}/cancel")

        assert (status, answer["data"]["status"]) == (200, "cancelled")
        assert is_gone(child)
        await is_without_result(flights)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["reading", "computing", "copied", "writing", "switching", "switched"])
async def test_a_killed_server_leaves_the_old_graph_or_the_new_and_no_process(
    loaded: Path, tmp_path: Path, step: str
) -> None:
    folder = tmp_path / "one"
    async with copied(loaded, folder, module=HELD) as flights:
        flights.hold_file.write_text(step)
        await flights.start("pagerank", edge_types=["ROUTE"], tolerance=1e-12)
        child = None if step in ("copied", "switching", "switched") else await flights.held_child()
        await until(lambda: child is not None or (folder / "held").exists())
        flights.running.process.kill()
        await flights.running.process.wait()
        await until(lambda: child is None or is_gone(child))
    async with reopened(folder) as flights:
        if step == "switched":
            assert dict(await flights.rows(RANKS)) == pytest.approx(expected_ranks())
            assert flights.left_behind() == []
        else:
            await is_without_result(flights)


async def test_a_cancel_during_the_switch_is_too_late(loaded: Path, tmp_path: Path) -> None:
    async with copied(loaded, tmp_path / "one", module=HELD) as flights:
        flights.hold_file.write_text("switching")
        id = await flights.start("pagerank", edge_types=["ROUTE"])
        await until((tmp_path / "one" / "held").exists)

        assert await flights.rows("MATCH (a:Airport) RETURN count(*)") == [[5]]
        cancelling = asyncio.create_task(flights.post(f"/algo/executions/{id}/cancel"))
        flights.hold_file.unlink()

        assert (await cancelling)[1]["data"]["status"] == "completed"
        assert dict(await flights.rows(RANKS)) == pytest.approx(expected_ranks())


async def test_an_id_stands_for_one_execution(loaded: Path, tmp_path: Path) -> None:
    async with copied(loaded, tmp_path / "one", module=HELD) as flights:
        flights.hold_file.write_text("reading")
        id = await flights.start("degree")
        assert await flights.start("degree", execution_id=id) == id
        os.kill(await flights.held_child(), signal.SIGCONT)
        first = await flights.ended(id)
        again = await flights.ended(await flights.start("degree", execution_id=id))
        assert first == again

        late = str(uuid.uuid4())
        assert (await flights.post(f"/algo/executions/{late}/cancel"))[0] == 200
        assert (await flights.ended(await flights.start("degree", execution_id=late)))["status"] == "cancelled"


async def test_a_result_is_replaced_and_what_is_mapped_never(loaded: Path, tmp_path: Path) -> None:
    async with copied(loaded, tmp_path / "one") as flights:
        status, refused = await flights.post("/algo/degree", write_property="City")
        assert (status, refused["error"]["code"]) == (409, "property_of_mapping")

        await flights.run("degree", write_property="score")
        assert [7, 2] in await flights.rows("MATCH (n:Airline) RETURN n.number, n.score")
        result = await flights.run("pagerank", node_labels=["Airport"], write_property="Score")

        assert result["type"] == "DOUBLE"
        assert await flights.properties("Airline") == []
        assert await flights.properties("Airport") == ["city", "Score"]
        [[total]] = await flights.rows("MATCH (n:Airport) RETURN sum(n.Score)")
        assert total == pytest.approx(1)


async def test_weights_count_and_those_that_cannot_are_named(loaded: Path, tmp_path: Path) -> None:
    async with copied(loaded, tmp_path / "one") as flights:

        async def degrees(weight: str) -> dict[str, Any]:
            asked = {"edge_types": ["ROUTE"], "weight_property": weight, "direction": "incoming"}
            return await flights.ended(await flights.start("degree", **asked))

        for weight, code, words in (
            ("late", "weight_missing", "1 edges of ROUTE have no late (NULL)."),
            ("delta", "weight_unusable", "1 edges of ROUTE have a delta that is negative, infinite or no number."),
        ):
            error = (await degrees(weight))["error"]
            assert (error["code"], error["message"]) == (code, words)
        assert (await degrees("km"))["result"]["type"] == "DOUBLE"
        assert await flights.rows("MATCH (a:Airport {code: 'ZRH'}) RETURN a.degree") == [[2.0 + 4.0 + 5.0 + 6.0]]


async def test_an_execution_that_takes_too_long_fails(loaded: Path, tmp_path: Path) -> None:
    async with copied(loaded, tmp_path / "one", module=HELD) as flights:
        flights.hold_file.write_text("computing")
        ended = await flights.ended(await flights.start("wcc", timeout_ms=1000))
        assert ended["error"]["code"] == "algorithm_timed_out"
        await is_without_result(flights)
