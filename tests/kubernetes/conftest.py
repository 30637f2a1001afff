"""A real API server with a namespace for each test, nodes of its own and a kubelet that does as it is told."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.cluster.admin import Admin, admin_of
from tests.cluster.faults import Faults, faults_before
from tests.cluster.kubelet import Kubelet, kubelet_of
from tests.cluster.logs import log_server
from tests.cluster.losing import Losing, losing_nodes
from tests.cluster.namespaces import POD_SECURITY, Nodes, new_namespace
from tests.cluster.server import Cluster, cluster, losing_cluster

__all__ = ["cluster", "losing_cluster"]

MakeNamespace = Callable[..., Awaitable[str]]


@pytest.fixture
async def admin(cluster: Cluster) -> AsyncIterator[Admin]:
    async with admin_of(cluster) as found:
        yield found


@pytest.fixture
async def make_namespace(admin: Admin) -> AsyncIterator[MakeNamespace]:
    """Further namespaces; all of them go with the test."""
    async with AsyncExitStack() as stack:

        async def make(name: str = "", labels: Mapping[str, str] = POD_SECURITY, share_nodes_of: str = "") -> str:
            return await stack.enter_async_context(new_namespace(admin, name, labels, share_nodes_of))

        yield make


@pytest.fixture
async def namespace(make_namespace: MakeNamespace) -> str:
    """One with Pod Security restricted, in which nothing is yet."""
    return await make_namespace()


@pytest.fixture
async def nodes(cluster: Cluster, admin: Admin, namespace: str, tmp_path: Path) -> AsyncIterator[Nodes]:
    """None at first: `await nodes.add(memory_bytes=...)`."""
    made = Nodes(admin, namespace)
    async with log_server(cluster, _pods_folder(tmp_path)) as made.kubelet_port:
        yield made


@pytest.fixture
async def kubelet(admin: Admin, namespace: str, tmp_path: Path) -> AsyncIterator[Kubelet]:
    async with kubelet_of(admin, namespace, _pods_folder(tmp_path)) as found:
        yield found


@pytest.fixture
async def losing(losing_cluster: Cluster) -> AsyncIterator[Losing]:
    """Another cluster, in which nodes are lost within seconds."""
    async with losing_nodes(losing_cluster) as found:
        yield found


@pytest.fixture
async def faults(cluster: Cluster) -> AsyncIterator[Faults]:
    """The same API server at another address, where it can be told to misbehave."""
    async with faults_before(cluster) as found:
        yield found


def _pods_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "pods"
    folder.mkdir(exist_ok=True)
    return folder
