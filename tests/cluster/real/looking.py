"""What the steps of the check on a real node look at, and wait for."""

import contextlib
from typing import Any

from paddock.client import PaddockError
from tests.cluster.admin import Json, namespaces, pods
from tests.cluster.real.overlay import HOME, INSTANCES
from tests.cluster.real.scene import Scene

SCALED = ("export-worker", "dump-worker")
DEPLOYMENTS = f"/apis/apps/v1/namespaces/{HOME}/deployments"


async def rolled_out(scene: Scene, name: str, replicas: int) -> None:
    async def look() -> bool:
        found = await scene.admin.get(f"{DEPLOYMENTS}/{name}") or {}
        status = found.get("status", {})
        wanted = (found.get("metadata", {}).get("generation"), replicas, replicas, replicas)
        keys = ("observedGeneration", "replicas", "updatedReplicas", "availableReplicas")
        return tuple(status.get(key) for key in keys) == wanted

    try:
        await scene.until(look, f"{name} is not rolled out")
    except AssertionError as problem:
        told = await scene.kubectl("describe", "pods", "-n", HOME)
        logs = await scene.kubectl("logs", "-n", HOME, f"deployment/{name}", "--tail=30")
        raise AssertionError(f"{problem}\n{told[-4000:]}\n{logs}") from None


async def has_replicas(scene: Scene, name: str, wanted: int) -> bool:
    found = await scene.admin.get(f"{DEPLOYMENTS}/{name}")
    return found is not None and found["status"].get("replicas", 0) == wanted == found["spec"]["replicas"]


async def settled(scene: Scene, instance: str) -> Json:
    async def look() -> Json | None:
        found: Json = (await scene.ask("GET", f"/api/instances/{instance}"))["data"]
        return found if found["status"] in ("running", "failed") else None

    found: Json = await scene.until(look, f"instance {instance} neither runs nor failed", 420)
    return found


async def people(scene: Scene) -> Any:
    asked = {"query": "MATCH (p:Person) RETURN count(*)"}
    return (await scene.ask("POST", f"/api/instances/{scene.instance}/query", body=asked))["data"]["rows"]


async def pod_name(scene: Scene) -> str:
    (pod,) = await scene.admin.list(pods(INSTANCES), labelSelector="paddock.io/instance")
    return str(pod["metadata"]["name"])


async def another_answers(scene: Scene, before: str) -> str:
    async def look() -> str | None:
        with contextlib.suppress(PaddockError, ValueError):
            if (name := await pod_name(scene)) != before and await people(scene) == [[1000]]:
                return name
        return None

    return str(await scene.until(look, f"no other pod came for {before}", 420))


async def restarts(scene: Scene) -> dict[str, int]:
    """Of the pods that are to stay: a scaler takes the others away, or a rollout that has just ended."""
    return {
        pod["metadata"]["name"]: sum(one["restartCount"] for one in pod["status"].get("containerStatuses", []))
        for namespace in (HOME, INSTANCES)
        for pod in await scene.admin.list(pods(namespace))
        if pod["metadata"].get("labels", {}).get("app") not in SCALED and "deletionTimestamp" not in pod["metadata"]
    }


async def nothing(scene: Scene, namespace: str) -> bool:
    return not await scene.admin.list(pods(namespace))


async def is_gone(scene: Scene, name: str) -> bool:
    return await scene.admin.get(namespaces(name)) is None
