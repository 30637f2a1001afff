"""Instances on a real API server: the app, its runtime through the proxy that misbehaves, and a kubelet that runs what a test
wants to run."""

import dataclasses
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.config import Config
from paddock.instances import beginning, running_on, talking
from paddock.instances.settings import InstanceSettings
from paddock.jobs.core import Core
from paddock.runtimes.kubernetes.access import find_access
from paddock.runtimes.kubernetes.client import Kubernetes
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.api.conftest import ada, clients, grace, root
from tests.cluster.admin import Admin, namespaces
from tests.cluster.faults import Faults
from tests.cluster.kubelet import Kubelet
from tests.cluster.namespaces import Nodes
from tests.cluster.server import Cluster
from tests.instances.conftest import core
from tests.instances.world import until, working
from tests.kubernetes.pods.pretending import Pretending
from tests.kubernetes.rendered import DEPLOY

__all__ = ["ada", "clients", "core", "grace", "root"]

INSTALLATION, ACCOUNT = "the-tests", "control-plane"


@pytest.fixture
def config(tmp_path: Path, namespace: str) -> Config:
    settings = InstanceSettings(
        runtime="kubernetes",
        kubernetes_image="paddock.test/paddock:1",
        kubernetes_instance_namespace=namespace,
    )
    engines = {"local": {"type": "duckdb"}}
    return Config(data=tmp_path, object_store=str(tmp_path / "objects"), engines=engines).with_settings(settings)


@pytest.fixture
async def account_token(admin: Admin, namespace: str) -> str:
    """Of the control plane's service account, bound by the Role of `deploy/`: what a test here does with it, that Role lets it."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    await admin.create(f"{namespaces(namespace)}/serviceaccounts", account)
    for made in yaml.safe_load_all((DEPLOY / "instances" / "roles.yaml").read_text()):
        for subject in made.get("subjects", ()):
            subject["namespace"] = namespace
        plural = f"{made['kind'].lower()}s"
        await admin.create(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{plural}", made)
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"system:serviceaccount:{namespace}:{ACCOUNT}",
            "resourceAttributes": {"namespace": namespace, "verb": "create", "resource": "pods"},
        },
    }

    async def allowed() -> bool:
        found = await admin.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(found["status"]["allowed"])

    await until("the API server has heard of its own Roles", allowed)
    asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    given = await admin.create(f"{namespaces(namespace)}/serviceaccounts/{ACCOUNT}/token", asked)
    return str(given["status"]["token"])


@pytest.fixture
async def client(cluster: Cluster, faults: Faults, account_token: str) -> AsyncIterator[Kubernetes]:
    """Its line goes through a proxy that knows no certificate of ours: it is whom its token names."""
    access = find_access({"KUBECONFIG": str(cluster.kubeconfig)})
    made = Kubernetes(dataclasses.replace(access, server=faults.url, token=account_token))
    yield made
    await made.close()


@pytest.fixture
async def runtime(
    config: Config, client: Kubernetes, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[KubernetesRuntime]:
    made = KubernetesRuntime(
        client,
        namespace=namespace,
        image="paddock.test/paddock:1",
        settings=PodSettings(),
        installation=INSTALLATION,
    )
    monkeypatch.setitem(running_on.OPENED, ("kubernetes", config.data), made)
    yield made
    await talking.close_session()


@pytest.fixture
def app(core: Core, config: Config, runtime: KubernetesRuntime) -> FastAPI:
    return create_app(core, config)


@pytest.fixture
async def pretending(kubelet: Kubelet, nodes: Nodes) -> AsyncIterator[Pretending]:
    """A node, and a kubelet in whose pods a pretended instance answers."""
    await nodes.add(memory_bytes=400 << 30, cpu=100)
    async with Pretending() as found:
        kubelet.choose = lambda _pod: found.run
        yield found


@pytest.fixture
async def at_work(core: Core, config: Config, runtime: KubernetesRuntime) -> AsyncIterator[None]:
    """As in a control plane: the internal worker, and whoever hears that pods end."""
    async with beginning.alongside(core, config), working(core, config):
        yield
