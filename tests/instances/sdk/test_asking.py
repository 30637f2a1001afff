"""The client against a running graph."""

import warnings
from typing import Any

import pytest

from paddock.client import (
    Client,
    GraphConnection,
    InstanceFailed,
    InstanceGone,
    NotFound,
    QueryFailed,
    QueryTimeout,
    ReadOnly,
    ResultTruncated,
    connect,
)
from tests.instances.flights import NAME
from tests.processes.running import Up

pytestmark = pytest.mark.slow

TWO = (
    "MATCH (a:Airport)-[r:ROUTE]->(b:Airport) RETURN a.code AS code, r.flights AS flights ORDER BY flights DESC LIMIT 2"
)


def test_connect_finds_what_the_command_line_finds(flights: Up, monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDOCK_SERVER", flights.address["url"])
    monkeypatch.setenv("PADDOCK_TOKEN", flights.token)
    with connect() as client:
        assert client.instances.get(NAME)["status"] == "running"


def test_rows_values_and_frames(conn: GraphConnection) -> None:
    assert list(conn.query(TWO)) == [{"code": "KFD", "flights": 1854}, {"code": "KJR", "flights": 500}]
    assert conn.query_scalar("MATCH (a:Airport) RETURN count(*)") == 2000
    assert conn.query_one("MATCH (a:Airport {code: $code}) RETURN a.city", {"code": "KFD"}) == {"a.city": "Nekadulo"}
    assert conn.query_one("MATCH (a:Airport {code: 'none'}) RETURN a.city") is None
    assert conn.query_df(TWO).to_dict("list") == {"code": ["KFD", "KJR"], "flights": [1854, 500]}
    assert conn.query_df(TWO, library="polars").rows() == [("KFD", 1854), ("KJR", 500)]


def test_an_arrow_table_has_all_rows(conn: GraphConnection) -> None:
    table = conn.query_arrow("MATCH (a:Airport)-[r:ROUTE]->(b:Airport) RETURN a.code, b.code, r.delay_minutes")
    assert table.num_rows == conn.query_scalar("MATCH ()-[r:ROUTE]->() RETURN count(r)")
    assert [str(field.type) for field in table.schema] == ["string", "string", "double"]


def test_a_cut_answer_says_so(conn: GraphConnection) -> None:
    everything = "MATCH (a:Airport) RETURN a.code"
    assert conn.query(everything, max_rows=3).truncated
    with pytest.warns(ResultTruncated, match="cut at 3 rows"):
        assert len(conn.query_df(everything, max_rows=3)) == 3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(conn.query_df(everything)) == 2000


def test_a_node_is_a_dict(conn: GraphConnection) -> None:
    node = conn.query_scalar("MATCH (a:Airport {code: 'KFD'}) RETURN a")
    assert node.pop("_id")
    assert node == {"_label": "Airport", "code": "KFD", "city": "Nekadulo", "latitude": -40.037, "longitude": 133.6923}


def test_the_schema_tells_labels_and_counts(conn: GraphConnection) -> None:
    schema = conn.get_schema()
    assert {node["label"]: node["count"] for node in schema["nodes"]} == {"Airport": 2000, "Airline": 40}
    assert {edge["type"] for edge in schema["edges"]} == {"ROUTE", "SERVES"}


@pytest.mark.parametrize(
    ("query", "kind"),
    [
        ("MATCH (a:Airport RETURN a", QueryFailed),
        ("MATCH (a:Nothing) RETURN a", QueryFailed),
        ("CREATE (:Airport {code: 'NEW'})", ReadOnly),
    ],
)
def test_what_is_wrong_with_a_query_has_a_class(conn: GraphConnection, query: str, kind: type[Exception]) -> None:
    with pytest.raises(kind):
        conn.query(query)
    with pytest.raises(kind):
        conn.query_arrow(query)


def test_a_query_ends_when_its_time_is_over(conn: GraphConnection) -> None:
    endless = "MATCH (a:Airport)-[:ROUTE*1..6]->(b:Airport) RETURN count(*)"
    with pytest.raises(QueryTimeout):
        conn.query(endless, timeout=1)
    assert conn.query_scalar("RETURN 1") == 1


def test_leaving_the_batches_early_is_fine(conn: GraphConnection) -> None:
    with conn.batches("MATCH (a:Airport)-[r:ROUTE]->(b:Airport) RETURN a.code, b.code") as answer:
        assert next(iter(answer)).num_rows > 0
    assert conn.query_scalar("RETURN 1") == 1


def test_an_instance_lives_longer_and_is_shared_and_goes(client: Client) -> None:
    snapshot = next(iter(client.snapshots.list(status="ready")))
    told: list[str] = []
    made = client.instances.create_and_wait(
        snapshot=snapshot, name="short", ttl="1h", on_progress=lambda one: told.append(one["status"]), timeout=110
    )
    assert told[-1] == "running"
    extended = client.instances.extend_ttl("short", "30m")
    assert extended["ttl"] == "PT5400S"
    client.instances.share(made, "grace")
    assert client.instances.get(made)["shared_with"] == ["grace"]
    client.instances.unshare(made, "grace")
    assert client.instances.update(made, description="for a test")["description"] == "for a test"
    assert [one["id"] for one in client.instances.list(q="for a test")] == [made["id"]]
    assert {event["type"] for event in client.instances.events(made)} >= {"instance.running"}
    client.instances.terminate(made)
    with pytest.raises(InstanceGone, match="short"):
        client.instances.get(made["id"])
    with pytest.raises(NotFound):
        client.instances.get("short")


def test_an_instance_that_cannot_be_loaded_says_why(client: Client) -> None:
    twice = {
        "label": "Airport",
        "primary_key": {"name": "code", "type": "STRING"},
        "properties": [],
        "sql": "SELECT 'KFD' AS code FROM range(2)",
    }
    mapping = client.mappings.create("twice", [twice])
    with pytest.raises(InstanceFailed, match="'KFD' comes twice") as failed:
        client.instances.create_and_wait(mapping, timeout=110)
    assert failed.value.code == "DATA_LOAD_ERROR"
    client.instances.terminate(failed.value.instance)
