"""Whatever is wrong with a request is said at once, at its field."""

from typing import Any
from uuid import uuid4

import httpx2
import pytest

from paddock.api.tokens import NewToken
from paddock.config import Config
from paddock.instances import running_on
from paddock.instances.settings import InstanceSettings
from paddock.jobs.core import Core
from tests.api.conftest import Clients
from tests.instances.fake_runtime import FakeRuntime
from tests.instances.world import GRAPH, code_of, create, export, fields_of, make_mapping, ready_snapshot

ID = "019a8b1e-4c50-7000-9d6e-6f1d3c0a51e7"


@pytest.fixture
async def mapping_id(core: Core) -> str:
    return str((await make_mapping(core)).id)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"mapping_id": None}, ""),
        ({"snapshot_id": ID}, ""),
        ({"ttl": "PT0S"}, "ttl"),
        ({"ttl": "P1M"}, "ttl"),
        ({"ttl": "P8D"}, "ttl"),
        ({"ttl": "soon"}, "ttl"),
        ({"inactivity_timeout": "PT0S"}, "inactivity_timeout"),
        ({"memory_gb": 0}, "memory_gb"),
        ({"memory_gb": 33}, "memory_gb"),
        ({"cpu_cores": 9}, "cpu_cores"),
        ({"wrapper_type": "falkordb"}, "wrapper_type"),
        ({"name": "x" * 256}, "name"),
        ({"name": "  "}, "name"),
        ({"mapping_version": 0}, "mapping_version"),
        ({"colour": "red"}, "colour"),
    ],
)
async def test_a_bad_field_is_named(ada: httpx2.AsyncClient, mapping_id: str, body: dict[str, Any], field: str) -> None:
    answer = await ada.post("/api/instances", json={"mapping_id": mapping_id, **body})
    assert field in (fields_of(answer) or [""])[0]


async def test_an_unknown_wrapper_lists_those_there_are(ada: httpx2.AsyncClient, mapping_id: str) -> None:
    answer = await ada.post("/api/instances", json={"mapping_id": mapping_id, "wrapper_type": "falkordb"})
    assert "ladybug" in answer.json()["error"]["message"]


async def test_what_is_not_there_or_not_ones_own_is_not_found(
    core: Core, config: Config, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, mapping_id: str
) -> None:
    assert code_of(await ada.post("/api/instances", json={"mapping_id": ID})) == (404, "not_found")
    assert code_of(await bob.post("/api/instances", json={"mapping_id": mapping_id})) == (404, "not_found")
    assert code_of(await ada.post("/api/instances", json={"snapshot_id": ID})) == (404, "not_found")
    version = {"mapping_id": mapping_id, "mapping_version": 7}
    assert code_of(await ada.post("/api/instances", json=version)) == (404, "not_found")
    snapshot = await ready_snapshot(core, config, name="other")
    assert code_of(await bob.post("/api/instances", json={"snapshot_id": str(snapshot.id)})) == (404, "not_found")


async def test_a_snapshot_that_is_not_ready_is_named(
    core: Core, config: Config, ada: httpx2.AsyncClient, mapping_id: str
) -> None:
    made = (await ada.post("/api/snapshots", json={"mapping_id": mapping_id})).json()["data"]
    answer = await ada.post("/api/instances", json={"snapshot_id": made["id"]})
    assert code_of(answer) == (409, "snapshot_not_ready")
    assert answer.json()["error"]["details"] == {"snapshot_id": made["id"], "status": "pending"}
    await export(core, config)
    await ada.delete(f"/api/snapshots/{made['id']}")
    answer = await ada.post("/api/instances", json={"snapshot_id": made["id"]})
    assert code_of(answer) == (409, "snapshot_not_ready")
    assert "deleting" in answer.json()["error"]["message"]


async def test_what_belongs_to_a_mapping_is_refused_beside_a_snapshot(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    snapshot = await ready_snapshot(core, config)
    answer = await ada.post("/api/instances", json={"snapshot_id": str(snapshot.id), "engine": "local"})
    assert answer.status_code == 422
    assert "Leave 'engine' out" in answer.json()["error"]["message"]


async def test_drain_refuses_both_ways_and_makes_nothing(
    core: Core, config: Config, ada: httpx2.AsyncClient, mapping_id: str
) -> None:
    snapshot = await ready_snapshot(core, config, name="other")
    await core.drain(True, actor="test", reason="moving house")
    for body in ({"mapping_id": mapping_id}, {"snapshot_id": str(snapshot.id)}):
        answer = await ada.post("/api/instances", json=body)
        assert code_of(answer) == (503, "draining")
        assert "Retry-After" in answer.headers
    assert (await ada.get("/api/instances")).json()["data"] == []


async def test_without_a_runtime_there_are_no_instances(
    core: Core, config: Config, ada: httpx2.AsyncClient, mapping_id: str, app: Any
) -> None:
    app.state.plane.config = config.with_settings(InstanceSettings(runtime="none"))
    assert code_of(await ada.post("/api/instances", json={"mapping_id": mapping_id})) == (409, "no_runtime")
    assert running_on.runtime_of(app.state.plane.config) is None


async def test_what_the_engine_cannot_load_is_refused_at_its_field(core: Core, ada: httpx2.AsyncClient) -> None:
    graph = {
        **GRAPH,
        "nodes": [
            {
                **GRAPH["nodes"][0],
                "properties": [
                    {"name": "fine", "type": "STRUCT(a DECIMAL(10,2))"},
                    {"name": "prices", "type": "LIST(DECIMAL(10,2))"},
                    {"name": "deep", "type": "MAP(STRING, STRUCT(a LIST(INT64), b DECIMAL(4,1)))"},
                ],
            }
        ],
    }
    mapping = await make_mapping(core, name="decimals", graph=graph)
    answer = await ada.post("/api/instances", json={"mapping_id": str(mapping.id)})
    assert code_of(answer) == (422, "not_loadable")
    assert fields_of(answer) == ["nodes.0.properties.1.type", "nodes.0.properties.2.type"]


async def test_a_label_and_an_edge_type_of_one_name_are_refused_in_old_versions_too(
    core: Core, ada: httpx2.AsyncClient
) -> None:
    body = {"name": "twins", **GRAPH, "edges": [{**GRAPH["edges"][0], "type": "AIRPORT"}]}
    answer = await ada.post("/api/mappings", json=body)
    assert fields_of(answer) == ["edges.0.type"]
    mapping = await make_mapping(core, name="twins")
    await core.db.pool("durable").execute(
        "UPDATE mapping_versions SET definition = jsonb_set(definition, '{edges,0,type}', '\"AIRPORT\"')"
    )
    answer = await ada.post("/api/instances", json={"mapping_id": str(mapping.id)})
    assert code_of(answer) == (422, "not_loadable")
    assert fields_of(answer) == ["edges.0.type"]


async def test_engines_and_roles_are_asked_as_for_a_snapshot(
    core: Core, clients: Clients, config: Config, app: Any, mapping_id: str
) -> None:
    app.state.plane.config = config.model_copy(
        update={
            "engines": {"local": {"type": "duckdb"}, "warehouse": {"type": "trino", "url": "https://trino.example"}}
        }
    )
    ada = await clients("ada")
    assert fields_of(await ada.post("/api/instances", json={"mapping_id": mapping_id})) == ["engine"]
    body = {"mapping_id": mapping_id, "engine": "warehouse"}
    assert code_of(await ada.post("/api/instances", json=body)) == (422, "missing_use_case_id")
    new = NewToken(name="poor", role="analyst", owner="ada")
    _, clients.secrets["poor"] = await clients.tokens.create(new, actor="test")
    poor = await clients("poor")
    assert code_of(await poor.post("/api/instances", json=body)) == (403, "engine_not_allowed")


async def test_the_same_key_makes_one_instance(core: Core, ada: httpx2.AsyncClient, mapping_id: str) -> None:
    headers = {"Idempotency-Key": uuid4().hex}
    first = await ada.post("/api/instances", json={"mapping_id": mapping_id}, headers=headers)
    again = await ada.post("/api/instances", json={"mapping_id": mapping_id}, headers=headers)
    assert (first.status_code, again.status_code) == (201, 201)
    assert first.headers["Location"] == again.headers["Location"]
    assert len((await ada.get("/api/instances")).json()["data"]) == 1
    other = await ada.post("/api/instances", json={"mapping_id": mapping_id, "name": "x"}, headers=headers)
    assert code_of(other) == (422, "idempotency_key_reused")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"query": "x" * (64 * 1024 + 1)}, "query"),
        ({"query": ""}, "query"),
        ({"query": "  \n"}, "query"),
        ({"query": "RETURN 1", "timeout_ms": 999}, "timeout_ms"),
        ({"query": "RETURN 1", "timeout_ms": 1_800_001}, "timeout_ms"),
        ({"query": "RETURN 1", "parameters": [1]}, "parameters"),
        ({"query": "RETURN 1", "max_rows": 0}, "max_rows"),
        ({"text": "RETURN 1"}, "query"),
    ],
)
async def test_a_bad_query_is_refused_before_the_instance_sees_it(
    ada: httpx2.AsyncClient, mapping_id: str, body: dict[str, Any], field: str
) -> None:
    made = await create(ada, mapping_id=mapping_id)
    answer = await ada.post(f"/api/instances/{made['id']}/query", json=body)
    assert field in fields_of(answer)
    waiting = await ada.post(f"/api/instances/{made['id']}/query", json={"query": "RETURN 1"})
    assert code_of(waiting) == (409, "instance_not_running")
    assert waiting.json()["error"]["details"] == {"status": "waiting_for_snapshot"}


@pytest.mark.parametrize(
    "body",
    [
        {"reason": "x"},
        {"reason": "x", "ids": [ID], "filter": {"owner": "ada"}},
        {"reason": "x", "filter": {}},
        {"reason": " ", "ids": [ID]},
        {"ids": [ID]},
        {"reason": "x", "ids": [ID] * 101},
        {"reason": "x", "filter": {"status": "sleeping"}},
        {"reason": "x", "filter": {"older_than": "yesterday"}},
    ],
)
async def test_a_deletion_of_many_says_what_it_means(ada: httpx2.AsyncClient, body: dict[str, Any]) -> None:
    assert (await ada.post("/api/instances/delete", json=body)).status_code == 422


async def test_lists_take_filters_and_refuse_others(
    core: Core, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, mapping_id: str
) -> None:
    made = await create(ada, mapping_id=mapping_id, name="First One", description="of many")
    for query in (
        {"mapping": mapping_id},
        {"snapshot": made["pending_snapshot_id"]},
        {"owner": "ada"},
        {"status": "running,waiting_for_snapshot"},
        {"q": "OF MANY"},
        {"name": "first one"},
    ):
        assert [one["id"] for one in (await ada.get("/api/instances", params=query)).json()["data"]] == [made["id"]]
    for query in ({"mapping": ID}, {"owner": "bob"}, {"status": "failed"}, {"q": "nothing"}):
        assert (await ada.get("/api/instances", params=query)).json()["data"] == []
    assert (await bob.get("/api/instances")).json()["data"] == []
    assert fields_of(await ada.get("/api/instances", params={"status": "asleep"})) == ["status"]
    assert fields_of(await ada.get("/api/instances", params={"mapping": "x"})) == ["mapping"]


async def test_a_change_is_bounded_and_told(
    core: Core, config: Config, runtime: FakeRuntime, ada: httpx2.AsyncClient, mapping_id: str
) -> None:
    made = await create(ada, mapping_id=mapping_id)
    path = f"/api/instances/{made['id']}"
    changed = (await ada.patch(path, json={"name": " New ", "ttl": "P2D", "inactivity_timeout": "PT1H"})).json()["data"]
    assert (changed["name"], changed["ttl"], changed["inactivity_timeout"]) == ("New", "PT172800S", "PT3600S")
    for body in (
        {"ttl": "P8D"},
        {"ttl": "PT0S"},
        {"ttl": "P1M"},
        {"inactivity_timeout": "never"},
        {"status": "running"},
    ):
        assert (await ada.patch(path, json=body)).status_code == 422
    pool = core.db.pool("durable")
    await pool.execute(
        "UPDATE instances SET status = 'running', started_at = paddock_now() - interval '6 days',"
        " expires_at = paddock_now() - interval '4 days'"
    )
    longer = await ada.patch(path, json={"ttl": "P10D"})
    assert longer.status_code == 200, "ten days from its first running are four from now"
    too_long = await ada.patch(path, json={"ttl": "P14D"})
    assert fields_of(too_long) == ["ttl"]
    assert "at most P7D from now" in too_long.text
    assert fields_of(await ada.patch(path, json={"ttl": "P1D"})) == ["ttl"]
