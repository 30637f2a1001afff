"""An instance's page and `why` tell of its pod while it starts and while it runs, whatever the cluster writes into it."""

import re
from datetime import timedelta
from uuid import UUID

import httpx2
import pytest
from fastapi import FastAPI
from markupsafe import escape

from paddock.api.app import create_app
from paddock.config import Config
from paddock.exports.snapshot_states import Snapshot
from paddock.instances import pod_now
from paddock.instances.model import get
from paddock.jobs.core import Core
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from paddock.web import pages
from tests.api.conftest import Clients
from tests.cluster import behaviours
from tests.cluster.admin import Admin, pods
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.instances.pages.conftest import browse
from tests.instances.world import create, ready_snapshot, running, until
from tests.kubernetes.pods.pretending import Pretending
from tests.kubernetes.pods.test_ends import name_of
from tests.web.signed_in import ODD, Browser, Open, words_of

__all__ = ["browse"]


@pytest.fixture
def app(core: Core, config: Config, runtime: KubernetesRuntime) -> FastAPI:
    return create_app(core, config, routes=pages.routes())


@pytest.fixture(autouse=True)
def always_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_now, "GOOD_FOR", timedelta(0))


@pytest.fixture
async def snapshot(core: Core, config: Config) -> Snapshot:
    return await ready_snapshot(core, config)


async def until_page(browser: Browser, id: str, *texts: str) -> str:
    async def look() -> str | None:
        page = await browser.read(f"/instances/{id}")
        return page if all(text in page for text in texts) else None

    return await until(f"the page says {texts}", look)


@pytest.mark.usefixtures("at_work")
async def test_a_pod_that_starts_is_shown_with_node_events_and_what_is_wrong(
    core: Core,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    admin: Admin,
    namespace: str,
    nodes: Nodes,
    kubelet: Kubelet,
    clients: Clients,
    browse: Open,
) -> None:
    node = await nodes.add(memory_bytes=400 << 30, cpu=100)
    kubelet.choose = lambda _pod: behaviours.waiting("ContainerCreating")
    made = await create(ada, snapshot_id=str(snapshot.id))
    name = await name_of(core, made["id"])
    await admin.until(pods(namespace, name), lambda pod: pod["status"].get("containerStatuses"))
    await kubelet.tell_event(name, "FailedMount", ODD)

    page = await until_page(await browse("ada"), made["id"], str(escape(ODD)))
    told = words_of(page)
    mends = "Who can mend it Paddock, by trying again"
    for text in (f"Its pod Pod {name}", f"Node {node}", "Phase Pending", "FailedMount", mends):
        assert text in told, told

    instance = await get(core.db, UUID(made["id"]))
    assert instance is not None
    answer = await ada.get(f"/api/jobs/{instance.job_id}/around")
    [around] = answer.json()["data"]
    assert f"Its pod {name} is Pending on node {node}." in around["sentence"]
    assert ODD in around["sentence"]
    assert "Who can mend it: Paddock, by trying again." in around["sentence"]
    assert (await (await clients("bob")).get(f"/api/jobs/{instance.job_id}/around")).status_code == 404


@pytest.mark.usefixtures("pretending", "at_work")
async def test_one_that_runs_is_shown_and_a_cluster_that_is_silent_delays_nobody(
    core: Core,
    ada: httpx2.AsyncClient,
    snapshot: Snapshot,
    kubelet: Kubelet,
    pretending: Pretending,
    browse: Open,
    faults: Faults,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = await running(core, ada, snapshot)
    name = await name_of(core, made["id"])
    await kubelet.tell_event(name, "Unhealthy", "its disk is slow")
    browser = await browse("ada")
    page = await until_page(browser, made["id"], "its disk is slow")
    assert re.search(rf"Its pod Pod {name} Node \S+ Phase Running", words_of(page))

    monkeypatch.setattr(pod_now, "LOOK_WITHIN", timedelta(milliseconds=50))
    gate = faults.hold(method="GET", path=name, times=None)
    page = await browser.read(f"/instances/{made['id']}")
    assert "Its pod could not be looked at: The cluster did not answer" in words_of(page)
    gate.release()
