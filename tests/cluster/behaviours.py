"""What the tests' kubelet can make of a pod. A behaviour kills what runs of the pod or starts it, and writes the status
that a real kubelet would: the words and fields are those that one was seen to write."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from tests.cluster.admin import Json

if TYPE_CHECKING:
    from tests.cluster.kubelet import Kubelet

Behaviour = Callable[["Kubelet", Json], Awaitable[None]]
KILLED = 137


async def run(kubelet: "Kubelet", pod: Json) -> None:
    """Its command for real, on an address of its own; without a command it is our image, so `paddock` with its arguments."""
    await kubelet.start(pod)


async def hold(kubelet: "Kubelet", pod: Json) -> None:
    """Nothing: bound to a node that has not looked at it yet."""


async def pretend_to_run(kubelet: "Kubelet", pod: Json) -> None:
    """Running and ready, with an address at which nothing answers."""
    await kubelet.write(pod, running(pod, kubelet.new_address()))


async def pull(kubelet: "Kubelet", pod: Json) -> None:
    await waiting("ContainerCreating")(kubelet, pod)


def waiting(reason: str, message: str = "") -> Behaviour:
    """The main container waits: ImagePullBackOff, CreateContainerConfigError and their like."""

    async def behave(kubelet: "Kubelet", pod: Json) -> None:
        state = {"waiting": {"reason": reason} | ({"message": message} if message else {})}
        await kubelet.write(pod, {"phase": "Pending", "startTime": now(), "containerStatuses": _all(pod, state)})

    return behave


def exits(code: int, reason: str = "", message: str = "") -> Behaviour:
    """It ran and ended so."""

    async def behave(kubelet: "Kubelet", pod: Json) -> None:
        await kubelet.kill(pod)
        await kubelet.write(pod, ended(pod, code, reason, message))

    return behave


oom_killed = exits(KILLED, "OOMKilled")


def evicted(message: str = "The node was low on resource: memory.") -> Behaviour:
    return _taken("Evicted", message)


def node_shutdown(message: str = "Pod was terminated in response to imminent node shutdown.") -> Behaviour:
    return _taken("Terminated", message)


def _taken(reason: str, message: str) -> Behaviour:
    """The node itself ended it, and says that the pod is not to blame."""

    async def behave(kubelet: "Kubelet", pod: Json) -> None:
        await kubelet.kill(pod)
        target = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": message}
        status = ended(pod, KILLED, "ContainerStatusUnknown")
        await kubelet.write(pod, status | {"reason": reason, "message": message, "conditions": [target]})

    return behave


def rejected(reason: str, message: str = "") -> Behaviour:
    """The kubelet would not have it (OutOfmemory, NodeAffinity): there never was a container."""
    return shows({"phase": "Failed", "reason": reason, "message": message})


def shows(status: Json) -> Behaviour:
    """This status, whatever runs."""

    async def behave(kubelet: "Kubelet", pod: Json) -> None:
        await kubelet.write(pod, status)

    return behave


def running(pod: Json, address: str, *, ready: bool = True) -> Json:
    state = {"running": {"startedAt": now()}}
    return {
        "phase": "Running",
        "startTime": now(),
        "hostIP": "127.0.0.1",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": "Initialized", "status": "True"},
            {"type": "ContainersReady", "status": str(ready)},
            {"type": "Ready", "status": str(ready)},
        ],
        "containerStatuses": _all(pod, state, started=ready),
    }


def ended(pod: Json, code: int, reason: str = "", message: str = "") -> Json:
    terminated = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "startedAt": _began(pod),
        "finishedAt": now(),
    } | ({"message": message} if message else {})
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": _all(pod, {"terminated": terminated}),
        "conditions": [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")],
    }


def resized(pod: Json) -> list[Json]:
    """The containers' statuses with what the specification asks for by now."""
    wanted = {container["name"]: container.get("resources", {}) for container in pod["spec"]["containers"]}
    return [
        found | {"resources": wanted[found["name"]], "allocatedResources": wanted[found["name"]].get("requests", {})}
        for found in pod["status"]["containerStatuses"]
    ]


def _all(pod: Json, state: Json, *, started: bool = False) -> list[Json]:
    return [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "restartCount": 0,
            "ready": started,
            "started": started,
            "state": state,
            "resources": container.get("resources", {}),
            "allocatedResources": container.get("resources", {}).get("requests", {}),
        }
        for container in pod["spec"]["containers"]
    ]


def _began(pod: Json) -> str:
    for found in pod.get("status", {}).get("containerStatuses", []):
        if "running" in found["state"]:
            return str(found["state"]["running"]["startedAt"])
    return now()


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
