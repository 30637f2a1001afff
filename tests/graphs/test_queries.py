"""What is asked of a graph that is there: formats, limits, errors, and who asks what."""

import asyncio
import csv
import io
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import orjson
import pyarrow as pa
import pytest
import pytest_asyncio

from tests.graphs.running import RunningInstance, cities, instance

ARROW = "application/vnd.apache.arrow.stream"
ENDLESS = "UNWIND range(1, 1000000) AS x UNWIND range(1, 1000000) AS y WITH x WHERE x % 2 = 7 RETURN count(x)"

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningInstance]:
    folder = tmp_path_factory.mktemp("queries")
    async with instance(folder / "instance") as one:
        status = await one.load(cities(folder / "store"))
        assert status["phase"] == "ready", status["error"]
        yield one


async def error(running: RunningInstance, text: str, **more: Any) -> dict[str, Any]:
    answer = await running.query(text, **more)
    assert answer.status_code >= 400, answer.text
    found: dict[str, Any] = {"status": answer.status_code, **answer.json()["error"]}
    return found


async def test_an_answer_says_its_columns_types_rows_and_how_long_it_took(running: RunningInstance) -> None:
    answer = await running.query("MATCH (c:City) RETURN c.name AS name, c.people AS people ORDER BY name")

    data = answer.json()["data"]
    assert data.pop("execution_time_ms") > 0
    assert data == {
        "columns": ["name", "people"],
        "column_types": ["STRING", "INT64"],
        "rows": [["Bern", 134], ["Graz", 292], ["Lyon", 522]],
        "row_count": 3,
        "truncated": False,
    }


async def test_every_answer_names_the_generation_and_the_restarts(running: RunningInstance) -> None:
    for path in ("/health", "/status", "/nothing"):
        answer = await running.client.get(path)
        assert answer.headers["Paddock-Generation"] == running.generation
        assert answer.headers["Paddock-Engine-Restarts"].isdigit()
        assert "Paddock-Engine-Restart-Reason" in answer.headers


async def test_nodes_relationships_and_paths_are_objects_with_their_own_properties(running: RunningInstance) -> None:
    [[node, edge, path]] = await running.rows(
        "MATCH p = (a:City {name: 'Bern'})-[r:ROAD]->(b:City {name: 'Graz'}) RETURN a, r, p"
    )

    assert node == {"_id": node["_id"], "_label": "City", "name": "Bern", "people": 134}
    assert edge == {
        "_id": edge["_id"],
        "_type": "ROAD",
        "_src": node["_id"],
        "_dst": path["_nodes"][1]["_id"],
        "km": 700.5,
    }
    assert [one["name"] for one in path["_nodes"]] == ["Bern", "Graz"]
    assert path["_rels"] == [edge]


async def test_a_csv_says_before_it_begins_how_many_rows_of_how_many_it_has(running: RunningInstance) -> None:
    for rows, most, told in ((3, 2, "2 of 3"), (2, 2, "2 of 2"), (0, 2, "0 of 0")):
        text = f"UNWIND range(1, {rows}) AS x RETURN x" if rows else "MATCH (n) WHERE false RETURN n"
        answer = await running.query(text, accept="text/csv", max_rows=most)
        assert answer.headers["paddock-rows"] == told
        assert len(answer.text.splitlines()) == 1 + min(rows, most)
    assert "paddock-rows" not in (await running.query("RETURN 1")).headers


async def test_a_csv_with_too_many_bytes_is_never_taken_for_whole(running: RunningInstance) -> None:
    text = "UNWIND range(1, 10) AS x RETURN repeat('a', 9000000) AS long"
    with pytest.raises(httpx2.HTTPError):
        await running.query(text, accept="text/csv")
    assert await running.rows("RETURN 1") == [[1]]


async def test_words_of_whoever_asks_are_not_taken_for_the_engines(running: RunningInstance) -> None:
    for words in ("out of memory", "bad_alloc", "read-only", "No space left on device", "prepare multiple statements"):
        for text in (f"RETURN cast('{words}' AS INT64)", f"MATCH (n:`{words}`) RETURN n", f"RETURN foo '{words}'"):
            answer = await running.query(text)
            assert answer.status_code == 422
            error = answer.json()["error"]
            assert error["code"] == "query_failed", text
            assert words in error["message"], text


async def test_csv_has_text_in_quotes_and_nothing_for_null(running: RunningInstance) -> None:
    answer = await running.query("RETURN 'a \"b\"' AS x, NULL AS y, 1.5 AS z, [1, 2] AS l", accept="text/csv")

    assert answer.headers["content-type"] == "text/csv"
    assert answer.text == '"x","y","z","l"\n"a ""b""",,1.5,"[1,2]"\n'
    assert list(csv.reader(io.StringIO(answer.text)))[1] == ['a "b"', "", "1.5", "[1,2]"]


async def test_the_last_batch_of_an_arrow_answer_says_what_was_counted(running: RunningInstance) -> None:
    answer = await running.query("UNWIND range(1, 100000) AS x RETURN x, x * 0.5 AS y", accept=ARROW, max_rows=99_999)

    batches = list(pa.ipc.open_stream(answer.content).iter_batches_with_custom_metadata())
    last = batches[-1].custom_metadata
    assert sum(batch.batch.num_rows for batch in batches) == 99_999
    assert {name: last[name] for name in (b"row_count", b"truncated")} == {
        b"row_count": b"99999",
        b"truncated": b"true",
    }


async def test_graph_values_in_arrow_are_json_that_says_so(running: RunningInstance) -> None:
    answer = await running.query("MATCH (c:City {name: 'Bern'}) RETURN c, sum(c.people) AS people", accept=ARROW)

    table = pa.ipc.open_stream(answer.content).read_all()
    assert table.schema.field("c").metadata == {b"paddock": b"json"}
    assert orjson.loads(table.column("c")[0].as_py())["name"] == "Bern"
    assert table.column("people").to_pylist() == [134]


@pytest.mark.parametrize("accept", ["application/json", "text/csv", ARROW])
async def test_more_rows_than_wanted_are_cut(running: RunningInstance, accept: str) -> None:
    answer = await running.query("UNWIND range(1, 1000) AS x RETURN x, [x] AS l", accept=accept, max_rows=10)

    if accept == ARROW:
        assert pa.ipc.open_stream(answer.content).read_all().num_rows == 10
    elif accept == "text/csv":
        assert answer.text.count("\n") == 11
    else:
        assert answer.json()["data"]["row_count"] == 10
        assert answer.json()["data"]["truncated"] is True


async def test_an_answer_of_text_ends_at_64_mib(running: RunningInstance) -> None:
    answer = await running.query("UNWIND range(1, 100) AS x RETURN repeat('x', 1000000) AS text")

    data = answer.json()["data"]
    assert data["truncated"] is True
    assert data["row_count"] == 67
    assert len(answer.content) <= 64 << 20


async def test_a_billion_rows_are_cut_at_the_limit(running: RunningInstance) -> None:
    text = "UNWIND range(1, 1000) AS x UNWIND range(1, 1000) AS y UNWIND range(1, 1000) AS z RETURN x, y, z"
    answer = await running.query(text, timeout_ms=60_000)

    if answer.status_code == 200:
        assert answer.json()["data"]["row_count"] == 10_000
    else:  # an engine that holds the rows runs out of its memory; either way the next query answers
        assert answer.json()["error"]["code"] in ("query_out_of_memory", "QUERY_TIMEOUT")
    assert await running.rows("RETURN 1") == [[1]]


async def test_an_engine_error_has_its_line_and_column(running: RunningInstance) -> None:
    found = await error(running, "MATCH (c:City)\nRETRUN c")

    assert (found["status"], found["code"]) == (422, "query_failed")
    assert found["details"]["line"] == 2
    assert "RETRUN" in found["message"]


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("CREATE (:City {name: 'Oslo'})", 422, "read_only"),
        ("DROP TABLE City", 422, "read_only"),
        ("RETURN 1; RETURN 2", 422, "query_failed"),
        ("MATCH (n:Nothing) RETURN n", 422, "query_failed"),
        ("RETURN $missing", 422, "query_failed"),
        ("", 422, "invalid"),
        ("   ", 422, "invalid"),
        ("RETURN '" + "x" * 65_536 + "'", 422, "invalid"),
        ("RETURN \u0000 1", 422, "invalid"),
    ],
)
async def test_what_cannot_be_asked_is_refused(running: RunningInstance, text: str, status: int, code: str) -> None:
    found = await error(running, text)

    assert (found["status"], found["code"]) == (status, code)


@pytest.mark.parametrize(
    "more",
    [
        {"timeout_ms": 999},
        {"timeout_ms": 30 * 60_000 + 1},
        {"timeout_ms": "60"},
        {"max_rows": 0},
        {"max_rows": 10_001},
        {"max_rows": True},
        {"parameters": [1]},
        {"parameters": {"x": 2**63}},
        {"query_id": "mine"},
        {"owner": 7},
        {"unknown": 1},
    ],
)
async def test_a_field_out_of_bounds_is_named(running: RunningInstance, more: dict[str, Any]) -> None:
    found = await error(running, "RETURN 1", **more)

    assert (found["status"], found["code"]) == (422, "invalid")
    assert found["details"]["fields"][0]["field"] == next(iter(more))


async def test_parameters_are_values_of_their_kind(running: RunningInstance) -> None:
    parameters = {"i": 7, "f": 1.5, "s": "Bern'; DROP TABLE City", "b": True, "l": [1, 2], "o": {"a": 1, "b": "x"}}
    [row] = await running.rows("RETURN $i, $f, $s, $b, $l, $o", parameters=parameters)

    assert row == list(parameters.values())
    lacking = (await running.query("RETURN $i, $code", parameters={"i": 7})).json()["error"]
    assert (lacking["code"], lacking["message"]) == ("query_failed", "Parameter code not found.")
    assert lacking["hint"].endswith("--param code=…")


async def test_a_body_that_is_no_json_and_a_type_nobody_writes_are_refused(running: RunningInstance) -> None:
    assert (await running.client.post("/query", content=b"{")).status_code == 400
    assert (await running.client.post("/query", content=b"[]")).status_code == 422
    assert (await running.query("RETURN 1", accept="text/html")).status_code == 406
    assert (await running.query("RETURN 1", accept="text/html, */*;q=0.1")).headers[
        "content-type"
    ] == "application/json"


async def test_only_the_token_of_this_generation_opens_the_door(running: RunningInstance) -> None:
    url = str(running.client.base_url)
    async with httpx2.AsyncClient(base_url=url) as stranger:
        assert (await stranger.get("/health")).json()["data"]["generation"] == running.generation
        for headers in ({}, {"Authorization": "Bearer other"}, {"Authorization": "Basic a-token-of-this-generation"}):
            for path in ("/status", "/schema", "/queries", "/ready", "/metrics", "/nothing"):
                assert (await stranger.get(path, headers=headers)).status_code == 401


async def test_the_schema_tells_labels_keys_properties_and_counts(running: RunningInstance) -> None:
    schema = (await running.client.get("/schema")).json()["data"]

    [city], [road] = schema["nodes"], schema["edges"]
    assert (city["label"], city["key"], city["count"]) == ("City", {"name": "name", "type": "STRING"}, 3)
    assert city["properties"] == [{"name": "people", "type": "INT64"}]
    assert (road["type"], road["from"], road["to"], road["count"]) == ("ROAD", "City", "City", 3)


async def test_whoever_asks_is_listed_and_can_be_cancelled(running: RunningInstance) -> None:
    id = str(uuid.uuid4())
    asking = asyncio.create_task(running.query(ENDLESS, query_id=id, owner="ada"))
    await running.until(lambda status: status["in_flight"] == 1)

    [listed] = (await running.client.get("/queries")).json()["data"]
    again = await running.query("RETURN 1", query_id=id)
    cancelled = await running.client.post(f"/queries/{id}/cancel")
    answer = await asking

    assert (listed["query_id"], listed["owner"], listed["query"], listed["state"]) == (id, "ada", ENDLESS, "running")
    assert again.status_code == 409
    assert cancelled.status_code == 200
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "query_cancelled")
    assert (await running.client.post(f"/queries/{id}/cancel")).status_code == 404


async def test_a_query_over_its_time_is_interrupted_and_the_engine_lives_on(running: RunningInstance) -> None:
    before = (await running.status())["engine_restarts"]
    found = await error(running, ENDLESS, timeout_ms=1_000)

    assert (found["status"], found["code"]) == (408, "QUERY_TIMEOUT")
    assert (await running.status())["engine_restarts"] == before


async def test_a_client_that_goes_away_cancels_its_query(running: RunningInstance) -> None:
    asking = asyncio.create_task(running.query(ENDLESS))
    await running.until(lambda status: status["in_flight"] == 1)
    asking.cancel()

    await running.until(lambda status: status["in_flight"] == 0)


async def test_a_client_that_leaves_in_the_middle_of_its_answer_frees_its_place(running: RunningInstance) -> None:
    body = {"query": "UNWIND range(1, 1000000) AS x RETURN x, x * 0.5 AS y, x * 3 AS z"}
    async with running.client.stream("POST", "/query", json=body, headers={"Accept": ARROW}) as answer:
        assert answer.status_code == 200
        async for _ in answer.aiter_bytes():
            break

    await running.until(lambda status: status["in_flight"] == 0)
    assert await running.rows("RETURN 1") == [[1]]


async def test_an_answer_that_is_cancelled_halfway_is_never_taken_for_the_whole(running: RunningInstance) -> None:
    id = str(uuid.uuid4())
    body = {"query": "UNWIND range(1, 1000000) AS x RETURN x, x * 0.5 AS y, x * 3 AS z", "query_id": id}
    with pytest.raises(httpx2.RemoteProtocolError):  # noqa: PT012  the request, its first piece, and what follows
        async with running.client.stream("POST", "/query", json=body, headers={"Accept": ARROW}) as answer:
            async for _ in answer.aiter_raw(1024):
                await running.client.post(f"/queries/{id}/cancel")

    await running.until(lambda status: status["in_flight"] == 0)


async def test_eight_run_64_wait_and_the_next_is_told_to_come_back(running: RunningInstance) -> None:
    asking = [asyncio.create_task(running.query(ENDLESS, timeout_ms=120_000)) for _ in range(8)]
    await running.until(lambda status: status["in_flight"] == 8)
    waiting = [asyncio.create_task(running.query(f"RETURN {number}")) for number in range(64)]
    await running.until(lambda status: status["queued"] == 64)

    refused = await running.query("RETURN 'one too many'")
    for query in (await running.client.get("/queries")).json()["data"]:
        if query["state"] == "running":
            await running.client.post(f"/queries/{query['query_id']}/cancel")
    answers = await asyncio.gather(*waiting)
    ended = await asyncio.gather(*asking)

    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "1")
    assert {answer.text for answer in answers if answer.status_code != 200} == set()
    assert [answer.json()["data"]["rows"] for answer in answers] == [[[number]] for number in range(64)]
    assert {answer.status_code for answer in ended} == {409}


async def test_a_query_that_waits_longer_than_its_time_is_told_so(running: RunningInstance) -> None:
    asking = [asyncio.create_task(running.query(ENDLESS, timeout_ms=120_000)) for _ in range(8)]
    await running.until(lambda status: status["in_flight"] == 8)

    found = await error(running, "RETURN 1", timeout_ms=1_000)
    for task in asking:
        task.cancel()

    assert (found["status"], found["code"]) == (408, "QUERY_TIMEOUT")
    assert "waiting" in found["message"]
    await running.until(lambda status: status["in_flight"] == 0)


async def test_the_metrics_count_queries_by_their_end(running: RunningInstance) -> None:
    await running.rows("RETURN 1")
    text = (await running.client.get("/metrics")).text

    assert 'paddock_instance_queries_total{outcome="ok"}' in text
    assert 'paddock_instance_queries_total{outcome="query_cancelled"}' in text
    assert "paddock_instance_query_seconds_count" in text
    assert "paddock_instance_memory_bytes" in text
