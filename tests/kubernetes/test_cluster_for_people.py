"""What people see of a cluster and may do about it: API, doctor and page, on a real API server."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.cli import app as cli
from paddock.cluster import alarming, examining, overview
from paddock.cluster.overview import Overview
from paddock.cluster.pages.cluster import sentence
from paddock.config import Config
from paddock.ingest.settings import IngestSettings
from paddock.instances import running_on
from paddock.instances.settings import InstanceSettings
from paddock.jobs.core import Core
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.installation import NotOurs, mismatches
from paddock.web import pages
from paddock.web.judging import Clause
from tests.api.conftest import Clients, ada, clients, grace, root, served
from tests.background.world import add_instance
from tests.cluster import behaviours
from tests.cluster.admin import Admin, Json, jobs, namespaces, pods
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.cluster.server import Cluster
from tests.instances.conftest import core
from tests.instances.pages.conftest import browse
from tests.instances.world import until, working
from tests.kubernetes.conftest import MakeNamespace
from tests.kubernetes.test_installation import Side
from tests.web.signed_in import Open, words_of

__all__ = ["ada", "browse", "clients", "core", "grace", "root", "served"]


@pytest.fixture
def config(tmp_path: Path, namespace: str) -> Config:
    settings = InstanceSettings(
        runtime="kubernetes", kubernetes_image="paddock.test/paddock:1", kubernetes_instance_namespace=namespace
    )
    return Config(data=tmp_path, object_store=str(tmp_path / "objects")).with_settings(settings)


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[Kubernetes]:
    made = Kubernetes(find_access({"KUBECONFIG": str(cluster.kubeconfig)}))
    yield made
    await made.close()


@pytest.fixture
async def side(core: Core, config: Config, client: Kubernetes, namespace: str, monkeypatch: pytest.MonkeyPatch) -> Side:
    made = Side(core.db, client, namespace, "paddock/paddock")
    monkeypatch.setitem(running_on.OPENED, ("kubernetes", config.data), made.runtime)
    return made


@pytest.fixture
def app(core: Core, config: Config, side: Side) -> FastAPI:
    return create_app(core, config, routes=pages.routes())


def quota(**hard: str) -> Json:
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": hard}}


def step_job(installation: str) -> Json:
    labels = {"paddock.io/installation": installation, "paddock.io/job": str(uuid4())}
    container = {"name": "step", "image": "paddock.test/step:1"}
    template = {"metadata": {"labels": labels}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": "step-1", "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": {"template": template}}


async def move(core: Core, home: str) -> None:
    async with core.db.transaction() as tx:
        await tx.execute("UPDATE installation SET home = $1", home)


async def test_operators_see_each_pod_with_what_is_wrong_in_words(
    clients: Clients,
    side: Side,
    grace: httpx2.AsyncClient,
    nodes: Nodes,
    kubelet: Kubelet,
    admin: Admin,
    namespace: str,
) -> None:
    await nodes.add()
    said = 'couldn\'t parse image name "<b>x</b>"'
    kubelet.choose = lambda _pod: behaviours.waiting("InvalidImageName", said)
    start = await side.start()
    await admin.until(pods(namespace, start.name), lambda pod: pod["status"].get("containerStatuses"))
    told = (await grace.get("/api/ops/cluster")).json()["data"]
    [shown] = told["objects"]
    assert (shown["name"], shown["state"], shown["owner"]) == (start.name, "pending", "ada")
    assert shown["diagnosis"]["category"] == "image_unavailable"
    assert said in shown["diagnosis"]["words"]
    assert told["without_row"] == [start.name]
    assert told["failures"] == {"image_unavailable": 1}
    assert told["version"].startswith("v1.")


async def test_a_job_without_a_pod_and_a_pod_that_its_node_does_not_begin_say_why(
    core: Core,
    config: Config,
    side: Side,
    nodes: Nodes,
    kubelet: Kubelet,
    admin: Admin,
    namespace: str,
    make_namespace: MakeNamespace,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Job is a step's, in the namespace of steps; its quota has no room for a pod."""
    monkeypatch.setattr(overview, "NO_POD_AFTER", timedelta(0))
    steps = await make_namespace(labels={})
    config = config.with_settings(IngestSettings(kubernetes_ingest_namespace=steps))
    id = await side.installation.check()
    await nodes.add()
    kubelet.choose = lambda _pod: behaviours.waiting("ContainerCreating")
    start = await side.start()
    await admin.until(pods(namespace, start.name), lambda pod: pod["status"].get("containerStatuses"))
    await kubelet.tell_event(start.name, "FailedMount", "MountVolume.SetUp failed")
    await admin.create(f"{namespaces(steps)}/resourcequotas", quota(pods="0"))
    await admin.until(f"{namespaces(steps)}/resourcequotas/few", lambda found: found.get("status", {}).get("used"))
    await admin.create(jobs(steps), step_job(id))

    async def told() -> Overview | None:
        found = await overview.look(core.db, config)
        assert found is not None
        return found if all(row.diagnosis is not None for row in found.rows) else None

    found = await until("both say why", told)
    assert {row.name: row.diagnosis and row.diagnosis.category for row in found.rows} == {
        start.name: "volume_or_network",
        "step-1": "quota_exceeded",
    }
    [job] = [row for row in found.rows if row.kind == "Job"]
    assert (job.namespace, job.state) == (steps, "waiting")
    assert sentence(found) == "2 pods and Jobs of ours; something is wrong with 2."


async def test_live_pods_have_their_rows_however_many_instances_there_are(
    core: Core, config: Config, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MOST_ROWS", 1)
    for _ in range(3):
        await side.start((await add_instance(core)).id)
    orphan = await side.start()
    found = await overview.look(core.db, config)
    assert found is not None
    assert [row.name for row in found.rows if not row.has_row] == [orphan.name]


async def test_a_mismatch_is_said_everywhere_and_only_an_admin_with_a_reason_ends_it(
    clients: Clients,
    core: Core,
    config: Config,
    side: Side,
    ada: httpx2.AsyncClient,
    grace: httpx2.AsyncClient,
    root: httpx2.AsyncClient,
) -> None:
    await side.start()
    nothing = await root.post("/api/ops/cluster/adopt", json={"reason": "why not"})
    assert (nothing.status_code, nothing.json()["error"]["code"]) == (409, "nothing_to_adopt")

    await move(core, "elsewhere/paddock")
    side.installation._looked_at = None
    told = (await grace.get("/api/ops/cluster")).json()["data"]
    assert "belongs to the control plane 'elsewhere/paddock'" in told["installation"]["mismatch"]
    assert told["without_pod"] == []
    findings = [finding async for finding in examining.cluster(core, config)]
    assert any(finding.level == "broken" and "elsewhere/paddock" in finding.message for finding in findings)

    for who in (ada, grace):
        assert (await who.post("/api/ops/cluster/adopt", json={"reason": "mine"})).status_code == 403
    unsaid = await root.post("/api/ops/cluster/adopt", json={"reason": " "})
    assert (unsaid.status_code, unsaid.json()["error"]["code"]) == (422, "invalid")
    adopted = await root.post("/api/ops/cluster/adopt", json={"reason": "the old one is gone"})
    assert adopted.status_code == 200, adopted.text
    assert adopted.json()["data"]["mismatch"] is None
    assert len(await side.names()) == 1


async def elsewhere(core: Core, side: Side) -> str:
    """The database belongs to another control plane by now, and this one has seen it. Which."""
    home = f"{uuid4().hex[:8]}/paddock"
    await side.installation.check()
    await move(core, home)
    side.installation._looked_at = None
    with pytest.raises(NotOurs):
        await side.installation.check()
    return home


async def test_the_form_and_the_overview_tell_of_a_mismatch_and_end_it(
    core: Core, clients: Clients, side: Side, browse: Open, root: httpx2.AsyncClient
) -> None:
    home = await elsewhere(core, side)
    clause = Clause("this database and its cluster do not belong together", "/cluster")
    assert await alarming.clauses(core.db) == [clause]
    operator, admin = await browse("grace"), await browse("root")
    assert home in words_of(await operator.read("/cluster"))
    assert "/cluster/adopt" not in await operator.read("/cluster")
    refused = await operator.send("/cluster/adopt", "/cluster", reason="it is mine")
    assert refused.status_code == 403
    assert "Say why" in await admin.refused("/cluster/adopt", "/cluster", 422, reason=" ")
    assert any(home in told for told in mismatches())
    assert await admin.done("/cluster/adopt", "/cluster", reason="restored") == "/cluster"
    page = words_of(await admin.read("/cluster"))
    assert home not in page
    await side.installation.check()
    assert not any(home in told for told in mismatches())


async def test_the_commands_show_a_mismatch_and_adopt(
    core: Core,
    clients: Clients,
    side: Side,
    served: str,
    root: httpx2.AsyncClient,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = await elsewhere(core, side)
    (tmp_path / "token").write_text(clients.secrets["root"])

    async def said(*words: str, code: int = 0) -> str:
        capsys.readouterr()
        where = ("--server", served, "--token-file", str(tmp_path / "token"))
        assert await asyncio.to_thread(cli.run, ["cluster", *words, *where]) == code
        out, err = capsys.readouterr()
        return out or err

    told = " ".join((await said("show")).split())
    assert f"belongs to the control plane '{home}'" in told
    assert "paddock cluster adopt --reason" in told
    assert home in json.loads(await said("show", "-o", "json"))["installation"]["mismatch"]
    assert "--reason" in await said("adopt", code=2)
    assert "Say why" in await said("adopt", "--reason", " ", code=2)
    bound = json.loads(await said("adopt", "--reason", "restored", "--fresh", "-o", "json"))
    assert (bound["mismatch"], bound["home"]) == (None, "paddock/paddock")
    assert "belong together already" in await said("adopt", "--reason", "again", code=4)
    assert bound["id"] in await said("show")


async def test_an_api_server_that_is_away_is_a_sentence(
    side: Side, grace: httpx2.AsyncClient, client: Kubernetes, core: Core, config: Config
) -> None:
    client.access.server = "https://127.0.0.1:9"
    told = (await grace.get("/api/ops/cluster")).json()["data"]
    assert told["problem"]["code"] == "api_unavailable"
    [finding] = [finding async for finding in examining.cluster(core, config)]
    assert (finding.level, "api_unavailable" in finding.message) == ("broken", True)


async def test_doctor_tells_permissions_pod_security_and_the_room_of_a_quota(
    cluster: Cluster, admin: Admin, namespace: str, core: Core, config: Config, side: Side
) -> None:
    await side.installation.check()
    findings = [finding async for finding in examining.cluster(core, config)]
    told = " ".join(finding.message for finding in findings)
    assert "Paddock may do" in told
    # The tests are its administrator.
    assert "Paddock may do more than it needs: get secrets" in told
    assert "enforces Pod Security restricted" in told
    assert "No quota bounds" in told

    few = quota(**{"pods": "10", "requests.memory": "3Gi"})
    await admin.create(f"{namespaces(namespace)}/resourcequotas", few)
    await admin.until(f"{namespaces(namespace)}/resourcequotas/few", lambda found: found.get("status", {}).get("used"))
    findings = [finding async for finding in examining.cluster(core, config)]
    assert any("room for 3 more instances" in finding.message for finding in findings)


async def test_without_its_role_doctor_lists_what_is_missing(
    cluster: Cluster, admin: Admin, namespace: str, core: Core, config: Config, side: Side, client: Kubernetes
) -> None:
    await side.installation.check()
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "nobody"}}
    await admin.create(f"{namespaces(namespace)}/serviceaccounts", account)
    token = await asyncio.to_thread(cluster.kubectl, "create", "token", "nobody", "-n", namespace)
    client.access.token = token.strip()
    client.access.context = cluster.ssl_context()
    findings = [finding async for finding in examining.cluster(core, config)]
    missing = next(finding for finding in findings if "may not" in finding.message)
    assert missing.level == "broken"
    assert "create pods" in missing.message
    assert "patch pods/resize" in missing.message
    assert any("forbidden" in finding.message for finding in findings if finding is not missing)


async def test_the_probe_is_a_pod_like_an_instances_that_says_what_it_reaches(
    core: Core,
    config: Config,
    side: Side,
    grace: httpx2.AsyncClient,
    root: httpx2.AsyncClient,
    nodes: Nodes,
    kubelet: Kubelet,
    admin: Admin,
    namespace: str,
) -> None:
    node = await nodes.add()
    async with working(core, config):
        made = await grace.post("/api/ops/cluster/probe", json={})
        assert made.status_code == 202, made.text
        again = await root.post("/api/ops/cluster/probe", json={})
        assert again.json()["data"]["job_id"] == made.json()["data"]["job_id"], "the one under way"
        async with asyncio.timeout(60):
            job = made.json()["data"]
            while job.get("completed_at") is None:
                answer = await grace.get(f"/api/jobs/{made.json()['data']['job_id']}", params={"wait": 20})
                job = answer.json()["data"]
    assert job["status"] == "completed", job
    started, reached = job["result"]["findings"]
    assert (started["level"], node in started["message"]) == ("ok", True)
    assert "the metadata address" in reached["message"]
    for left in await admin.list(jobs(namespace)):
        await admin.until_gone(jobs(namespace, left["metadata"]["name"]))
