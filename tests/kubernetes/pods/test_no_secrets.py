"""No token, no URL of the database and no value of a Secret is in a manifest, a log line, an event, an error or a row."""

import json
from typing import Any

import httpx2
import pytest
from structlog.testing import capture_logs

from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.jobs.core import Core
from tests.api.conftest import Clients
from tests.cluster import behaviours
from tests.cluster.admin import Admin, namespaces, pods
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.instances.world import create, ready_snapshot, running, until_status
from tests.kubernetes.pods.test_ends import name_of

TABLES = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public' AND table_type = 'BASE TABLE'"


@pytest.fixture
async def snapshot(core: Core, config: Config) -> Snapshot:
    return await ready_snapshot(core, config)


async def rows_of(core: Core) -> str:
    """All there are, but for the one column that holds tokens of instances."""
    db, found = core.db.pool("durable"), []
    for row in await db.fetch(TABLES):
        name = row["table_name"]
        found += [
            one["text"] for one in await db.fetch(f"SELECT (to_jsonb(t) - $1)::text AS text FROM {name} t", "token")
        ]
    return "\n".join(found)


@pytest.mark.usefixtures("pretending", "at_work")
async def test_nothing_that_is_secret_is_anywhere(
    core: Core,
    dsn: str,
    clients: Clients,
    ada: httpx2.AsyncClient,
    grace: httpx2.AsyncClient,
    account_token: str,
    snapshot: Snapshot,
    kubelet: Kubelet,
    faults: Faults,
    admin: Admin,
    namespace: str,
) -> None:
    """One instance runs, one dies, one is refused."""
    with capture_logs() as lines:
        runs, dies = [await running(core, ada, snapshot, memory_gb=1) for _ in range(2)]
        manifests = await admin.list(pods(namespace))
        await kubelet.apply(await name_of(core, dies["id"]), behaviours.exits(1, "Error", "it is broken"))
        await until_status(core, dies["id"], "failed")
        faults.refuse(403, method="POST", path="/pods", message="it is not wanted", reason="Forbidden")
        refused = await create(ada, snapshot_id=str(snapshot.id))
        await until_status(core, refused["id"], "failed")
    answers: list[Any] = [(await grace.get("/api/ops/cluster")).text]
    places = [f"/api/instances/{one['id']}{path}" for one in (runs, dies, refused) for path in ("", "/events", "/logs")]
    answers += [(await ada.get(place)).text for place in places]
    cluster_events = await admin.list(f"{namespaces(namespace)}/events")
    told = {
        "a manifest": json.dumps(manifests),
        "an event of the cluster": json.dumps(cluster_events),
        "a log line": json.dumps(lines, default=str),
        "an answer": json.dumps(answers),
        "a row": await rows_of(core),
    }
    assert len(manifests) == 2
    assert "it is not wanted" in told["a row"]
    tokens = await core.db.pool("durable").fetch("SELECT token FROM instances")
    secrets = {"the account's token": account_token, "the database": dsn}
    secrets |= {f"the token of instance {n}": row["token"] for n, row in enumerate(tokens)}
    secrets |= {f"the token of {name}": secret for name, secret in clients.secrets.items()}
    assert len(tokens) == 3
    for what, text in told.items():
        for name, secret in secrets.items():
            assert secret not in text, f"{name} is in {what}"
