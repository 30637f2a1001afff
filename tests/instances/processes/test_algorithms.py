"""Executions on a real instance, asked for, killed and cancelled through the control plane."""

from typing import Any

import httpx2
import pytest

from paddock.config import Config
from paddock.instances import algorithm_service
from paddock.jobs.core import Core
from paddock.runtimes.local import LocalRuntime
from tests.instances.processes.graph import AIRPORTS, WHOLE, Held, counted, kill, real_snapshot, rows
from tests.instances.world import code_of, events_of, running, until, until_idle, until_status
from tests.processes.running import alive

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("at_work")]


class Graph:
    """Ada's instance."""

    def __init__(self, id: str, client: httpx2.AsyncClient, held: Held) -> None:
        self.id = id
        self.path = f"/api/instances/{id}"
        self.client = client
        self.held = held

    async def run(self, name: str, **parameters: Any) -> str:
        answer = await self.client.post(f"{self.path}/algo/{name}", json=parameters)
        assert answer.status_code == 202, answer.text
        return str(answer.json()["data"]["execution_id"])

    async def ended(self, execution: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            answer = await self.client.get(f"{self.path}/algo/executions/{execution}")
            found: dict[str, Any] = answer.json()["data"]
            return None if found["status"] in ("queued", "running") else found

        return await until("the execution has ended", look)

    async def properties(self) -> list[str]:
        [airport] = (await self.client.get(f"{self.path}/schema")).json()["data"]["nodes"]
        return [declared["name"] for declared in airport["properties"]]

    async def is_as_it_was(self, *results: str) -> None:
        """Whole, with these results, and free for the next execution."""
        assert await counted(self.client, self.id) == WHOLE
        assert await self.properties() == ["name", *results]
        assert (await self.client.get(f"{self.path}/lock")).json()["data"] == {"locked": False}
        assert [path.name for path in (self.held.folder / "db").iterdir()] == [str(1 + len(results))]
        assert not (self.held.folder / "algorithm").exists()


@pytest.fixture
async def graph(core: Core, config: Config, runtime: LocalRuntime, ada: httpx2.AsyncClient) -> Graph:
    made = await running(core, ada, await real_snapshot(core, config))
    return Graph(made["id"], ada, Held(runtime.root, made["id"]))


@pytest.mark.parametrize("step", ["computing", "writing"])
async def test_a_killed_child_fails_the_execution_and_nothing_else(core: Core, graph: Graph, step: str) -> None:
    """What computes, and what has written half of the result."""
    graph.held.hold(step)
    first = await graph.run("pagerank")
    child = await graph.held.stopped_child()
    second = await graph.client.post(f"{graph.path}/algo/wcc", json={})
    assert code_of(second) == (409, "RESOURCE_LOCKED")
    named = second.json()["error"]["details"]
    assert (named["holder"], named["algorithm"], named["execution_id"]) == ("ada", "pagerank", first)
    assert await counted(graph.client, graph.id) == WHOLE, "queries go on all the time"

    graph.held.let_go()
    kill(child)
    failed = await graph.ended(first)

    assert (failed["status"], failed["error"]["code"]) == ("failed", "algorithm_crashed")
    await until_idle(core)
    await graph.is_as_it_was()
    assert (await events_of(core, graph.id))[-1] == "algorithm_failed"
    next_one = await graph.run("degree")
    assert (await graph.ended(next_one))["status"] == "completed"
    assert len(await rows(graph.client, graph.id, "MATCH (a:Airport) WHERE a.degree > 0 RETURN a")) == len(AIRPORTS)
    history = (await graph.client.get(f"{graph.path}/algo/executions")).json()["data"]
    assert [(one["execution_id"], one["status"]) for one in history] == [(next_one, "completed"), (first, "failed")]


async def test_cancelled_or_over_its_time_it_is_gone_with_its_child(core: Core, graph: Graph) -> None:
    graph.held.hold("writing")
    cancelled = await graph.run("wcc")
    child = await graph.held.stopped_child()
    answer = await graph.client.post(f"{graph.path}/algo/executions/{cancelled}/cancel")
    assert (answer.status_code, answer.json()["data"]["status"]) == (200, "cancelled")
    await until_idle(core)
    assert not alive(child)
    await graph.is_as_it_was()

    graph.held.hold("computing")
    late = await graph.ended(await graph.run("wcc", timeout_ms=1000))
    assert (late["status"], late["error"]["code"]) == ("failed", "algorithm_timed_out")
    await until_idle(core)
    await graph.is_as_it_was()


async def test_what_makes_no_sense_is_refused_at_once_and_holds_nothing(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(algorithm_service, "FIRST_WORD_SECONDS", 60.0)
    taken = await graph.client.post(f"{graph.path}/algo/degree", json={"write_property": "name"})
    assert code_of(taken) == (409, "property_of_mapping")
    wrong = await graph.client.post(f"{graph.path}/algo/pagerank", json={"damping": 7})
    assert wrong.status_code == 422
    assert "damping" in wrong.text
    unknown = await graph.client.post(f"{graph.path}/algo/magic", json={})
    assert unknown.status_code in (404, 422)
    assert "pagerank" in unknown.text, "those that there are"
    await graph.is_as_it_was()


async def test_a_query_that_cannot_be_answered_says_why_and_the_next_one_is(graph: Graph) -> None:
    for query, parameters, code in (
        ("RETURN 1; RETURN 2", {}, "query_failed"),
        ("CREATE (:Airport {code: 'OSA'})", {}, "read_only"),
        ("MATCH (a:Airport) WHERE a.code = $code RETURN a", {}, "query_failed"),
        ("RETURN date($day)", {"day": "the day after"}, "query_failed"),
        ("RETURN list_sum($numbers)", {"numbers": "one"}, "query_failed"),
    ):
        answer = await graph.client.post(f"{graph.path}/query", json={"query": query, "parameters": parameters})
        assert code_of(answer) == (422, code), query
        assert answer.json()["error"]["message"], query
    assert await counted(graph.client, graph.id) == WHOLE


@pytest.mark.parametrize(("point", "results"), [("copied", []), ("switching", []), ("switched", ["pagerank"])])
async def test_a_server_killed_around_the_switch_leaves_the_old_graph_or_the_new(
    core: Core, graph: Graph, point: str, results: list[str]
) -> None:
    graph.held.hold(point)
    execution = await graph.run("pagerank")
    await graph.held.waits()
    family = graph.held.processes()
    kill(await graph.held.server())

    failed = await graph.ended(execution)
    assert (failed["status"], failed["error"]["code"]) == ("failed", "instance_restarted")
    found = await until_status(core, graph.id, "failed")
    assert found.error is not None
    assert found.error["code"] == "UNEXPECTED_TERMINATION"
    await until_idle(core)
    assert not [one for one in family if alive(one)]

    graph.held.let_go()
    assert (await graph.client.post(f"{graph.path}/reopen")).status_code == 202
    await until_status(core, graph.id, "running")
    assert (await graph.client.get(f"{graph.path}/status")).json()["data"]["from_database"] is True
    await graph.is_as_it_was(*results)
