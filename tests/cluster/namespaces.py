"""A namespace and the nodes that are its own: tests that run side by side on one cluster take no room from each other.

The namespace carries the annotation by which the server's admission adds a node selector to each pod made in it, and its
nodes carry that label. So the manifests under test know nothing of it; what the scheduler says of a pod counts the
others' nodes too ("2 node(s) didn't match Pod's node affinity/selector")."""

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

from tests.cluster.admin import Admin, Json, Refused, namespaces, nodes, pods

OWN_NODES = "tests.paddock.io/namespace"
POD_SECURITY = {
    "pod-security.kubernetes.io/enforce": "restricted",
    "pod-security.kubernetes.io/warn": "restricted",
}
MIB = 1 << 20


@asynccontextmanager
async def new_namespace(
    admin: Admin, name: str = "", labels: Mapping[str, str] = POD_SECURITY, share_nodes_of: str = ""
) -> AsyncIterator[str]:
    """Pods can be made in it from the start. Pods and nodes of it are gone at the end, the rest of it soon after."""
    name = name or f"test-{uuid.uuid4().hex[:10]}"
    selector = f"{OWN_NODES}={share_nodes_of or name}"
    metadata: Json = {
        "name": name,
        "labels": dict(labels),
        "annotations": {"scheduler.alpha.kubernetes.io/node-selector": selector},
    }
    await admin.create(namespaces(), {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        # Before it is there no pod is admitted.
        await admin.until(f"{namespaces(name)}/serviceaccounts/default", bool)
        yield name
    finally:
        await remove_namespace(admin, name)


async def remove_namespace(admin: Admin, name: str) -> None:
    """Its pods at once, whoever would have confirmed it; then the namespace itself, by the cluster and in its time."""
    await admin.ask("DELETE", nodes(), labelSelector=f"{OWN_NODES}={name}")
    await admin.delete(namespaces(name))
    await force_pods_away(admin, name)


async def force_pods_away(admin: Admin, namespace: str) -> None:
    # Phase first: a Job's finalizer keeps a pod that is gone without having ended.
    for pod in await admin.list(pods(namespace)):
        path = pods(namespace, pod["metadata"]["name"])
        try:
            if pod.get("status", {}).get("phase") not in ("Failed", "Succeeded"):
                await admin.patch(f"{path}/status", {"status": {"phase": "Failed"}})
        except Refused as refusal:
            if refusal.code != 404:
                raise
        await admin.delete(path, grace=0)


class Nodes:
    """Nodes that are objects: the scheduler binds pods to them, the tests' kubelet says what becomes of those."""

    def __init__(self, admin: Admin, namespace: str) -> None:
        self._admin = admin
        self.namespace = namespace
        self._made = 0
        # Where the tests' kubelet answers for logs; it says so itself.
        self.kubelet_port = 0

    async def add(
        self,
        *,
        memory_bytes: int = 8 << 30,
        cpu: int = 8,
        disk_bytes: int = 100 << 30,
        pods: int = 200,
        name: str = "",
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Json] = (),
    ) -> str:
        """The name of a new node that is ready and has this much room."""
        self._made += 1
        name = name or f"{self.namespace}-{self._made}"
        own = {OWN_NODES: self.namespace, "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        # Whether nodes are lost or their whole zone is told by zone.
        own["topology.kubernetes.io/zone"] = self.namespace
        node: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": own | dict(labels or {})},
            "spec": {"taints": list(taints)},
        }
        await self._admin.create(nodes(), node)
        room = {
            "cpu": str(cpu),
            "memory": f"{memory_bytes // MIB}Mi",
            "ephemeral-storage": f"{disk_bytes // MIB}Mi",
            "pods": str(pods),
        }
        status: Json = {
            "capacity": room,
            "allocatable": room,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "nodeInfo": {"kubeletVersion": "v1.36.4", "operatingSystem": "linux"} | dict.fromkeys(NODE_INFO, ""),
        }
        if self.kubelet_port:
            status["daemonEndpoints"] = {"kubeletEndpoint": {"Port": self.kubelet_port}}
        await self._admin.patch(f"{nodes(name)}/status", {"status": status})
        # Admission added "not ready", and no controller of this cluster takes it off.
        await self._admin.patch(nodes(name), {"spec": {"taints": list(taints) or None}})
        return name

    async def remove(self, name: str) -> None:
        await self._admin.delete(nodes(name))


NODE_INFO = (
    *("machineID", "systemUUID", "bootID", "kernelVersion", "osImage"),
    *("containerRuntimeVersion", "kubeProxyVersion", "architecture"),
)
