"""From a mapping to Cypher and gone again, with everything running as `paddock up` runs it."""

import json
from collections.abc import Iterator
from typing import Any

import psutil
import pytest
import yaml

from paddock.client import Client, PaddockError
from tests.exports.place import PEOPLE, ROWS, Place
from tests.exports.place import place as whole_place
from tests.processes.running import alive, wait_for

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with whole_place() as found:
        yield found


def make_mapping(client: Client, name: str) -> dict[str, Any]:
    body = {**yaml.safe_load(PEOPLE), "name": name}
    made: dict[str, Any] = client.request("POST", "/api/mappings", body=body)["data"]
    return made


def until_settled(client: Client, id: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = client.request("GET", f"/api/instances/{id}", params={"wait": 20}, timeout=60)["data"]
        return found if found["status"] in ("running", "failed") else None

    return wait_for(f"instance {id} runs or failed", look)


def test_a_mapping_becomes_a_graph_that_answers_and_leaves_nothing_behind(place: Place) -> None:
    client = place.client
    mapping = make_mapping(client, "whole")
    asked = {"mapping_id": mapping["id"], "engine": "local", "name": "people"}
    made = client.request("POST", "/api/instances", body=asked)["data"]
    assert made["status"] == "waiting_for_snapshot"
    assert made["pending_snapshot_id"] is not None

    running = until_settled(client, made["id"])
    assert running["status"] == "running", running
    assert running["error"] is None
    assert running["pod_name"] == f"ladybug-wrapper-{made['id']}-1"
    folder = place.up.data / "instances" / made["id"]
    process = psutil.Process(json.loads((folder / "run.json").read_text())["pid"])
    assert alive(process)

    asked = {"query": "MATCH (p:Person)-[:KNOWS]->(o) WHERE p.id = $id RETURN p.name, o.id", "parameters": {"id": 42}}
    answer = client.request("POST", f"/api/instances/{made['url_slug']}/query", body=asked)["data"]
    assert (answer["columns"], answer["rows"]) == (["p.name", "o.id"], [["name 0", 21]])
    counted = client.request(
        "POST", f"/api/instances/{made['id']}/query", body={"query": "MATCH (p:Person) RETURN count(*)"}
    )
    assert counted["data"]["rows"] == [[ROWS]]

    with pytest.raises(PaddockError, match="used by 'people'") as refused:
        client.request("DELETE", f"/api/snapshots/{running['snapshot_id']}")
    assert refused.value.code == "snapshot_in_use"

    gone = client.request("DELETE", f"/api/instances/{made['id']}", timeout=60)["data"]
    assert gone == {"id": made["id"], "status": "gone"}
    assert not alive(process)
    assert not folder.exists()
    with pytest.raises(PaddockError) as missing:
        client.request("GET", f"/api/instances/{made['id']}")
    assert missing.value.code == "instance_gone"
    assert client.request("DELETE", f"/api/instances/{made['id']}")["data"]["status"] == "gone"
    assert client.request("DELETE", f"/api/snapshots/{running['snapshot_id']}")["data"]["status"] == "deleting"
