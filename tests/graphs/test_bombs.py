"""A query that takes too much kills at most the engine child: the instance stays, and the next query answers."""

import asyncio
from pathlib import Path

import httpx2
import pyarrow as pa
import pytest

from tests.graphs.running import RunningInstance, cities, instance, is_gone, most_resident_bytes, nodes

# Minutes of parsing. What a parser ends within the seconds it has to hear the interrupt, it has learnt: asked once more, it
# answers at once.
DEEP = 400
# What an engine child takes before the first query, generously.
WITHOUT_QUERIES = 256 << 20
PARSER = {
    "lists": "RETURN " + "[" * DEEP + "]" * DEEP,
    "parentheses": "RETURN " + "(" * 3_000 + "1" + ")" * 3_000,
    "sums": "RETURN " + "1+" * 15_000 + "1",
    "cases": "RETURN " + "CASE WHEN true THEN " * 300 + "1" + " END" * 300,
}
MEMORY = [
    "UNWIND range(1, 200000000) AS x RETURN x ORDER BY x % 7, x DESC",
    "UNWIND range(1, 50000000) AS x RETURN size(collect(x))",
    "RETURN size(repeat('x', 2000000000))",
    "RETURN repeat('x', 2000000000)",
    "UNWIND range(1, 100) AS x RETURN repeat('x', 50000000)",
    "MATCH (a:City)-[r:ROAD*1..30]->(b) RETURN r",
]


async def loaded(running: RunningInstance, store: Path) -> None:
    status = await running.load(cities(store))
    assert status["phase"] == "ready", status["error"]


async def killed_by(running: RunningInstance, bomb: str) -> httpx2.Response:
    """The answer to the bomb for which the engine child was killed. On a busy machine its time may be over before the parser
    has begun, which hears the interrupt then, and nothing needs to be killed."""
    before = (await running.status())["engine_restarts"]
    while True:
        answer = await running.query(bomb, timeout_ms=1_000)
        assert (answer.status_code, answer.json()["error"]["code"]) == (408, "QUERY_TIMEOUT")
        if answer.headers["Paddock-Engine-Restarts"] != str(before):
            return answer


@pytest.mark.parametrize(
    ("wrapper_type", "bombs"), [("ladybug", ["lists", "sums"]), ("ryugraph", ["parentheses", "cases"])]
)
async def test_a_parser_that_hears_nothing_is_killed_and_the_next_query_answers(
    tmp_path: Path, wrapper_type: str, bombs: list[str]
) -> None:
    async with instance(tmp_path / "instance", wrapper_type=wrapper_type) as running:
        await loaded(running, tmp_path / "store")
        for restarts, bomb in enumerate(bombs):
            assert (await running.status())["engine_restarts"] == restarts
            answer = await killed_by(running, PARSER[bomb])
            assert answer.headers["Paddock-Engine-Restarts"] == str(restarts + 1)
            assert answer.headers["Paddock-Engine-Restart-Reason"] == "timeout"
            assert await running.rows("MATCH (c:City) RETURN count(*)") == [[3]]


async def test_the_queries_beside_a_killed_one_are_told_to_come_again(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await loaded(running, tmp_path / "store")
        endless = "UNWIND range(1, 1000000) AS x UNWIND range(1, 1000000) AS y WITH x WHERE x % 2 = 7 RETURN count(x)"
        beside = asyncio.create_task(running.query(endless, timeout_ms=120_000))
        await running.until(lambda status: status["in_flight"] == 1)

        await killed_by(running, PARSER["sums"])
        answer = await beside

        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_restarted")
        assert answer.headers["Retry-After"] == "1"
        assert (await running.status())["phase"] == "ready"


async def test_eight_bombs_at_once_leave_an_instance_that_answers(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await loaded(running, tmp_path / "store")
        bombs = [asyncio.create_task(running.query(text, timeout_ms=1_000)) for text in [*PARSER.values()] * 2]

        statuses = {answer.status_code for answer in await asyncio.gather(*bombs)}

        assert statuses <= {408, 503}
        assert await running.rows("MATCH (c:City) RETURN count(*)") == [[3]]


@pytest.mark.parametrize("wrapper_type", ["ladybug", "ryugraph"])
async def test_a_query_that_wants_more_memory_than_there_is_is_told_so(tmp_path: Path, wrapper_type: str) -> None:
    memory = 512 << 20
    async with instance(tmp_path / "instance", wrapper_type=wrapper_type, memory_bytes=memory) as running:
        await loaded(running, tmp_path / "store")
        for text in MEMORY:
            answer = await running.query(text, timeout_ms=5_000)

            if answer.status_code != 200:
                # An engine that does not look whether it got its memory dies of it: at most the child, and it is said.
                assert answer.json()["error"]["code"] in (
                    *("query_out_of_memory", "QUERY_TIMEOUT", "query_failed", "query_crashed"),
                ), text
            assert await running.rows("MATCH (c:City) RETURN count(*)") == [[3]]
            assert max(map(most_resident_bytes, running.children())) < memory + WITHOUT_QUERIES


async def test_a_child_that_dies_of_a_query_is_replaced(tmp_path: Path) -> None:
    async with instance(tmp_path / "instance") as running:
        await loaded(running, tmp_path / "store")
        endless = "UNWIND range(1, 1000000) AS x UNWIND range(1, 1000000) AS y WITH x WHERE x % 2 = 7 RETURN count(x)"
        asking = asyncio.create_task(running.query(endless, timeout_ms=120_000))
        await running.until(lambda status: status["in_flight"] == 1)

        [engine] = running.children()
        running.crash(engine)
        answer = await asking

        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "query_crashed")
        assert await running.rows("MATCH (c:City) RETURN count(*)") == [[3]]
        assert (await running.status())["engine_restart_reason"] == "crashed"
        assert is_gone(engine)


async def test_of_several_queries_beside_a_crash_none_is_blamed_until_it_happens_again(tmp_path: Path) -> None:
    endless = "UNWIND range(1, 1000000) AS x UNWIND range(1, 1000000) AS y WITH x WHERE x % 2 = {} RETURN count(x)"
    async with instance(tmp_path / "instance") as running:
        await loaded(running, tmp_path / "store")
        codes = []
        for _ in range(2):
            await running.rows("RETURN 'the engine is there'")
            asking = [asyncio.create_task(running.query(endless.format(n), timeout_ms=120_000)) for n in (7, 8)]
            await running.until(lambda status: status["in_flight"] == 2)
            [engine] = running.children()
            running.crash(engine)
            codes.append([answer.json()["error"]["code"] for answer in await asyncio.gather(*asking)])

        assert codes == [["engine_restarted"] * 2, ["query_crashed"] * 2]
        assert await running.rows("MATCH (c:City) RETURN count(*)") == [[3]]


async def test_a_load_that_needs_more_memory_than_there_is_says_so(tmp_path: Path) -> None:
    many = pa.table({"id": pa.array(range(100_000), pa.int64()), "text": ["x" * 200] * 100_000})
    plan = {"nodes": [nodes(tmp_path / "store", "Thing", ("id", "INT64"), [("text", "STRING")], many)], "edges": []}
    async with instance(tmp_path / "instance", memory_bytes=8 << 20) as running:
        status = await running.load(plan)

        assert (status["phase"], status["error"]["cause"]) == ("failed", "out_of_memory"), status["error"]
