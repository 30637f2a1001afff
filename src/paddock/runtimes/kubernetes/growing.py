"""More memory for a pod that runs, by its subresource `resize`: no restart, and its database stays."""

from typing import Any

from paddock.runtimes.kubernetes.client import Kubernetes, Object
from paddock.runtimes.kubernetes.errors import ApiError
from paddock.runtimes.kubernetes.manifest import CONTAINER, bytes_of, quantity
from paddock.runtimes.kubernetes.resources import PODS
from paddock.runtimes.runtime import CannotGrow


class Resizing:
    def __init__(self, client: Kubernetes, namespace: str) -> None:
        self._client, self._namespace = client, namespace

    async def grow(self, name: str, uid: str, memory_bytes: int) -> bool:
        """Whether its container has it. Asked for once: what the spec says already is not sent again."""
        pod = await self._client.get(PODS, self._namespace, name)
        if pod is None or pod["metadata"]["uid"] != uid:
            raise CannotGrow(f"Pod {name} is gone.")
        if _limit(_container(pod["spec"].get("containers"))) < memory_bytes:
            await self.ask(name, memory_bytes)
            return False
        return _limit(_container((pod.get("status") or {}).get("containerStatuses"))) >= memory_bytes

    async def ask(self, name: str, memory_bytes: int) -> None:
        memory = {"memory": quantity(memory_bytes)}
        change = {"spec": {"containers": [{"name": CONTAINER, "resources": {"requests": memory, "limits": memory}}]}}
        try:
            await self._client.patch(PODS, self._namespace, name, "resize", change)
        except ApiError as problem:
            if problem.may_pass:
                raise
            raise CannotGrow(f"Kubernetes refused more memory for Pod {name}: {problem.message}") from problem


def _container(containers: Any) -> Object:
    return next((one for one in containers or () if one.get("name") == CONTAINER), {})


def _limit(container: Object) -> int:
    limits = (container.get("resources") or {}).get("limits") or {}
    return bytes_of(limits["memory"]) if "memory" in limits else 0
