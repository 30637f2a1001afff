"""What a Job of ours looks like: one pod, once. Kubernetes starts no second execution by itself; whether there is one is decided
by the job that it is run for. Its containers keep to Pod Security `restricted`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from paddock.runtimes.kubernetes.client import Object
from paddock.runtimes.kubernetes.creating import SPEC_HASH, spec_hash
from paddock.runtimes.kubernetes.manifest import INSTALLATION, USER, place, quantity
from paddock.runtimes.kubernetes.pod_settings import PodSettings

JOB, TRY = "paddock.io/job", "paddock.io/try"
COMPONENT = "job"
GRACE_SECONDS = 10
KEPT_SECONDS = 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """`secrets` names variables by (Secret, key); `mounts` folders by the volume that is there, and `read_only` those volumes
    that it may not change. `ours`: Paddock put it beside the main one, and its failures are the platform's. It starts without a
    Secret that is not there: that is for the main one to fail for."""

    name: str
    image: str
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    mounts: Mapping[str, str] = field(default_factory=dict)
    read_only: Collection[str] = ()
    memory_bytes: int = 256 << 20
    cpu: float = 0.1
    ours: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """`init` run one after the other before `containers`; the one named `main` does the work and may be any of them. The name
    gets the number of the try. `timeout` counts from the main one's start."""

    namespace: str
    name: str
    main: str
    containers: Sequence[Container]
    init: Sequence[Container] = ()
    # emptyDirs, by name, with what they may hold.
    volumes: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    settings: PodSettings = field(default_factory=PodSettings)
    timeout: timedelta = timedelta(minutes=5)
    # What the main one may get when it runs out of memory; None: no more than it asks for.
    memory_most: int | None = None

    @property
    def all(self) -> Sequence[Container]:
        return (*self.init, *self.containers)

    @property
    def ours(self) -> frozenset[str]:
        return frozenset(one.name for one in self.all if one.ours)

    @property
    def memory_bytes(self) -> int:
        return next(one.memory_bytes for one in self.all if one.name == self.main)


def job_of(spec: JobSpec, *, job: str, number: int, installation: str, memory_bytes: int, net: timedelta) -> Object:
    """`net`: Kubernetes ends it by then, should nobody else."""
    labels = {
        **spec.settings.labels,
        **spec.labels,
        "app.kubernetes.io/name": "paddock",
        "app.kubernetes.io/component": COMPONENT,
        "app.kubernetes.io/managed-by": "paddock",
        INSTALLATION: installation,
        JOB: job,
        TRY: str(number),
    }
    content: Object = {
        "backoffLimit": 0,
        "podReplacementPolicy": "Failed",
        "activeDeadlineSeconds": int(net.total_seconds()),
        "ttlSecondsAfterFinished": KEPT_SECONDS,
        "template": {
            "metadata": {"labels": labels, "annotations": dict(spec.settings.annotations)},
            "spec": _pod(spec, memory_bytes),
        },
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name_of(spec, number),
            "labels": labels,
            "annotations": {**spec.settings.annotations, SPEC_HASH: spec_hash(content)},
        },
        "spec": content,
    }


def name_of(spec: JobSpec, number: int) -> str:
    return f"{spec.name}-{number}"


def _pod(spec: JobSpec, memory_bytes: int) -> Object:
    told: Object = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER,
            "runAsGroup": USER,
            "fsGroup": USER,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(one, spec, memory_bytes) for one in spec.containers],
        "volumes": [{"name": name, "emptyDir": {"sizeLimit": quantity(size)}} for name, size in spec.volumes.items()],
    }
    if spec.init:
        told["initContainers"] = [_container(one, spec, memory_bytes) for one in spec.init]
    place(told, spec.settings)
    return told


def _container(one: Container, spec: JobSpec, memory_bytes: int) -> Object:
    room = {"cpu": str(one.cpu), "memory": quantity(memory_bytes if one.name == spec.main else one.memory_bytes)}
    # What is ours may use CPU that nobody else does; a command of others has what it asked for, and no more.
    limits = {"memory": room["memory"]} if one.ours else room
    # What a pod writes counts against its node: all of its volumes and a little for its log.
    disk = {"ephemeral-storage": quantity(sum(spec.volumes.values()) + (64 << 20))}
    optional = {"optional": True} if one.ours else {}
    told: Object = {
        "name": one.name,
        "image": one.image,
        "resources": {"requests": {**room, **disk}, "limits": {**limits, **disk}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [_mount(one, path, volume) for path, volume in one.mounts.items()],
        "env": [
            *({"name": name, "value": value} for name, value in one.environment.items()),
            *(
                {"name": name, "valueFrom": {"secretKeyRef": {"name": secret, "key": key, **optional}}}
                for name, (secret, key) in one.secrets.items()
            ),
        ],
    }
    if one.command:
        told["command"] = list(one.command)
    if one.args:
        told["args"] = list(one.args)
    return told


def _mount(one: Container, path: str, volume: str) -> Object:
    told: Object = {"name": volume, "mountPath": path}
    return {**told, "readOnly": True} if volume in one.read_only else told
