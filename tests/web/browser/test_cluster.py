"""The cluster page on a whole Paddock with a real API server, two hundred pods and texts that are hostile."""

import json
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect

from paddock.client import Client
from tests.cluster.server import Cluster, cluster
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for
from tests.storage.servers import Server
from tests.web.browser.conftest import LOOKS, Person, axe, fits, settled, shot
from tests.web.chromium import chromium

__all__ = ["cluster"]

OWNERS = {"analyst": "ada", "ops": "olga", "admin": "ruth"}
HOSTILE = "<img src=x onerror=alert(1)> <script>alert(2)</script> ' \" \u202eרע 🐎"
PODS = 200
SECURITY = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
CONTAINER = {
    "name": "instance",
    "image": "paddock.test/paddock:1",
    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
}


@pytest.fixture(scope="session")
def namespace(cluster: Cluster) -> Iterator[str]:
    name = f"pages-{uuid4().hex[:10]}"
    cluster.kubectl("create", "namespace", name)
    yield name
    cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.fixture(scope="session")
def up(cluster: Cluster, namespace: str, s3_server: Server) -> Iterator[Up]:
    chromium()
    environment = clean_environment(
        KUBECONFIG=str(cluster.kubeconfig),
        PADDOCK_RUNTIME="kubernetes",
        PADDOCK_KUBERNETES_IMAGE="paddock.test/paddock:1",
        PADDOCK_KUBERNETES_INSTANCE_NAMESPACE=namespace,
        PADDOCK_OBJECT_STORE=f"{s3_server.url}/{uuid4()}",
        **s3_server.environ,
    )
    with data_folder() as data, running_up(data, "--port", "0", environment=environment) as running:
        yield running


@pytest.fixture(scope="session")
def admin(up: Up) -> Iterator[Client]:
    with up.client() as client:
        yield client


@pytest.fixture(scope="session")
def secrets(admin: Client) -> dict[str, str]:
    def made(role: str, owner: str) -> str:
        body = {"name": f"{owner}-{role}", "role": role, "owner": owner}
        return str(admin.request("POST", "/api/tokens", body=body)["data"]["token"])

    return {role: made(role, owner) for role, owner in OWNERS.items()}


@pytest.fixture(scope="session")
def orphans(admin: Client, cluster: Cluster, namespace: str) -> str:
    """Pods with our installation's id that no instance names; one of them has an image that cannot be had. Its name."""

    def bound() -> str | None:
        found: dict[str, Any] = admin.request("GET", "/api/ops/cluster")["data"]
        return (found["installation"] or {}).get("id")

    id = wait_for("the cluster is bound", bound, 60)
    names = [f"ladybug-wrapper-{uuid4()}-1" for _ in range(PODS)]
    made = {"apiVersion": "v1", "kind": "List", "items": [_pod(name, str(id)) for name in names]}
    cluster.kubectl("create", "-n", namespace, "-f", "-", text=json.dumps(made))
    waiting = {"waiting": {"reason": "InvalidImageName", "message": HOSTILE}}
    status = {"name": "instance", "image": "x", "imageID": "", "ready": False, "restartCount": 0, "state": waiting}
    change = json.dumps({"status": {"containerStatuses": [status]}})
    cluster.kubectl("patch", "pod", names[0], "-n", namespace, "--subresource=status", "--type=merge", "-p", change)
    return names[0]


def _pod(name: str, installation: str) -> dict[str, Any]:
    instance = name.removeprefix("ladybug-wrapper-").removesuffix("-1")
    labels = {
        "paddock.io/installation": installation,
        "paddock.io/instance": instance,
        "paddock.io/generation": str(uuid4()),
        "app.kubernetes.io/component": "instance",
    }
    metadata = {"name": name, "labels": labels, "annotations": {"paddock.io/owner": HOSTILE}}
    spec = {"containers": [CONTAINER], "securityContext": SECURITY, "restartPolicy": "Never"}
    # The scheduler leaves it alone: a pod that only waits.
    gated = {**spec, "schedulingGates": [{"name": "tests.example/held"}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": gated}


async def unharmed(page: Page) -> None:
    assert await page.evaluate("document.querySelectorAll('main img, main script').length") == 0


@LOOKS
async def test_two_hundred_pods_with_hostile_texts_are_told_what_is_wrong_first(
    person: Person, orphans: str, theme: str, width: int
) -> None:
    page = await person("ops", theme=theme, width=width)
    await page.goto("/cluster")
    await settled(page)
    await expect(page.locator("[data-announce]")).to_have_text(
        f"{PODS} pods and Jobs of ours; something is wrong with 1."
    )
    rows = page.locator("tr[id^=object-]")
    await expect(rows).to_have_count(PODS)
    first = rows.first
    await expect(first).to_contain_text(orphans)
    await expect(first).to_contain_text("image_unavailable")
    await expect(first).to_contain_text("no instance names it")
    await expect(first).to_contain_text("<script>alert(2)</script>")
    await expect(rows.nth(1)).to_contain_text("waits for a scheduling gate of the cluster")
    await unharmed(page)
    await fits(page)
    await axe(page)
    await shot(page, "cluster")
