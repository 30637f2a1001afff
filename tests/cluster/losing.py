"""A node that is lost for real: the cluster with short clocks, three nodes that beat, and one of them that stops."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from tests.cluster.admin import Admin, Json, admin_of
from tests.cluster.namespaces import Nodes, new_namespace
from tests.cluster.server import Cluster

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
BEAT_SECONDS = 0.3


@dataclass
class Heartbeats:
    """Renews the lease of each node, as its kubelet does. Who is taken out of `nodes` is lost seconds later."""

    admin: Admin
    nodes: set[str] = field(default_factory=set)

    async def begin(self, node: str) -> None:
        await self.admin.create(LEASES, {"metadata": {"name": node}, "spec": self._renewed(node)})
        self.nodes.add(node)

    async def beat(self) -> None:
        while True:
            for node in sorted(self.nodes):
                await self.admin.patch(f"{LEASES}/{node}", {"spec": self._renewed(node)})
            await asyncio.sleep(BEAT_SECONDS)

    def _renewed(self, node: str) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        return {"holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now}


@dataclass
class Losing:
    """`nodes.add(...)` alone gives a node that is lost within seconds: `add` gives one that beats."""

    cluster: Cluster
    admin: Admin
    namespace: str
    nodes: Nodes
    heartbeats: Heartbeats

    async def add(self, **room: int) -> str:
        node = f"{self.namespace}-{len(self.heartbeats.nodes)}-beats"
        await self.heartbeats.begin(node)
        return await self.nodes.add(name=node, **room)  # type: ignore[arg-type]

    def lose(self, node: str) -> None:
        self.heartbeats.nodes.discard(node)


@contextlib.asynccontextmanager
async def losing_nodes(cluster: Cluster) -> AsyncIterator[Losing]:
    """With two nodes that nobody's pods fit on: where all nodes of a zone are lost, Kubernetes evicts nothing."""
    async with admin_of(cluster) as admin, new_namespace(admin) as namespace:
        heartbeats = Heartbeats(admin)
        beating = asyncio.create_task(heartbeats.beat())
        found = Losing(cluster, admin, namespace, Nodes(admin, namespace), heartbeats)
        try:
            for _ in range(2):
                await found.add(memory_bytes=0)
            yield found
        finally:
            beating.cancel()
            await asyncio.gather(beating, return_exceptions=True)
