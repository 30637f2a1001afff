"""From a snapshot in a bucket to Cypher through the control plane, in a pod, and gone again."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import httpx2
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import running_on, talking
from paddock.jobs.core import Core
from paddock.runtimes.runtime import Runtime
from paddock.storage.drafts import Draft, DraftFile, new_draft_id
from paddock.storage.store import open_managed
from tests.cluster.admin import Admin, pods
from tests.cluster.faults import Faults
from tests.cluster.namespaces import Nodes
from tests.cluster.server import Cluster
from tests.instances.world import make_mapping, running, until_gone
from tests.playing import worker
from tests.snapshots.making import make_snapshot, now, payload_of, result
from tests.storage.servers import Server

pytestmark = pytest.mark.slow

AIRPORTS = pa.table({"code": ["FRA", "JFK", "GRZ"], "name": ["Frankfurt", "New York", "Graz"]})
ROUTES = pa.table({"from": ["FRA", "GRZ"], "to": ["JFK", "FRA"]})
# Of one instance from its creation to its end, as the API server counts them.
MOST_REQUESTS = 15


@pytest.fixture
def config(config: Config, s3_server: Server, monkeypatch: pytest.MonkeyPatch) -> Config:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    return config.model_copy(update={"object_store": f"{s3_server.url}/{uuid4()}"})


@pytest.fixture
async def runtime(
    config: Config, cluster: Cluster, faults: Faults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Runtime]:
    """As `serve` opens it, from the settings and a kubeconfig."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(cluster.kubeconfig.read_text().replace(cluster.url, faults.url))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setattr(running_on, "OPENED", {})
    found = running_on.runtime_of(config)
    assert found is not None
    yield found
    await talking.close_session()


async def snapshot_of_airports(core: Core, config: Config, folder: Path) -> Snapshot:
    mapping = await make_mapping(core)
    made = await make_snapshot(core, mapping, owner="ada", engine="local", role=None)
    store = open_managed(config)
    for attempt in await (await worker(core)).claim("export", limit=10):
        payload = payload_of(attempt)
        table = AIRPORTS if "airports" in payload["sql"] else ROUTES
        file = folder / f"{uuid4()}.parquet"
        pq.write_table(table, file)
        content = file.read_bytes()
        draft = Draft(store, payload["output"], new_draft_id())
        await store.put(f"{draft.prefix}/part-0.parquet", content)
        digest = hashlib.sha256(content).hexdigest()
        await draft.adopt(DraftFile("part-0.parquet", table.num_rows, len(content), digest))
        sealed = await draft.seal({"format": "parquet"})
        facts = {"bytes": sealed.bytes, "files": 1, "manifest": sealed.manifest, "sha256": sealed.sha256}
        assert await attempt.finish("done", result=result(table.num_rows, **facts)) == "accepted"
    found = await now(core, made.id)
    assert found.status == "ready"
    return found


@pytest.mark.usefixtures("kubelet", "at_work")
async def test_an_instance_is_a_pod_that_answers_cypher_and_nothing_of_it_is_left(
    core: Core,
    config: Config,
    ada: httpx2.AsyncClient,
    admin: Admin,
    namespace: str,
    nodes: Nodes,
    faults: Faults,
    tmp_path: Path,
) -> None:
    await nodes.add()
    snapshot = await snapshot_of_airports(core, config, tmp_path)

    made = await running(core, ada, snapshot)
    [pod] = await admin.list(pods(namespace))
    assert pod["metadata"]["name"] == f"ladybug-wrapper-{made['id']}-1"
    assert pod["metadata"]["labels"]["paddock.io/instance"] == made["id"]
    query = {"query": "MATCH (a:Airport)-[:ROUTE]->(b) RETURN a.name, b.name ORDER BY a.name"}
    answer = await ada.post(f"/api/instances/{made['id']}/query", json=query)
    assert answer.json()["data"]["rows"] == [["Frankfurt", "New York"], ["Graz", "Frankfurt"]]

    gone = await ada.delete(f"/api/instances/{made['id']}", timeout=60)
    assert gone.json()["data"] == {"id": made["id"], "status": "gone"}
    assert await admin.list(pods(namespace)) == []
    await until_gone(core, made["id"])
    of_this_one = [one for one in faults.requests if not (one.is_watch or "continue" in one.query)]
    assert len(of_this_one) <= MOST_REQUESTS, [(one.method, one.path, one.code) for one in of_this_one]
