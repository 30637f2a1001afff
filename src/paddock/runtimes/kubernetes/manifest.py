"""What the pod of an instance looks like. It keeps to Pod Security `restricted` by itself, whatever the namespace enforces.

It gets no credential at all: no service account token, no environment, and of its own token only the hash.
"""

import json
import re

from paddock.runtimes.kubernetes.client import Object
from paddock.runtimes.kubernetes.creating import SPEC_HASH, spec_hash
from paddock.runtimes.kubernetes.pod_settings import PodSettings
from paddock.runtimes.runtime import Start

PROTOCOL = 1
PORT = 8080
CONTAINER = "instance"
FOLDER = "/data"
USER = 10001
GRACE_SECONDS = 10
INSTALLATION, INSTANCE, GENERATION = "paddock.io/installation", "paddock.io/instance", "paddock.io/generation"
OWNER = "paddock.io/owner"
COMPONENT = "instance"
MIB = 1 << 20


def pod_of(start: Start, *, image: str, installation: str, settings: PodSettings) -> Object:
    spec = _spec(start, image, settings)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": start.name,
            "labels": {
                **settings.labels,
                "app": f"{start.wrapper_type}-wrapper",
                "app.kubernetes.io/name": "paddock",
                "app.kubernetes.io/component": COMPONENT,
                "app.kubernetes.io/managed-by": "paddock",
                INSTALLATION: installation,
                INSTANCE: str(start.instance),
                GENERATION: str(start.generation),
                OWNER: label_value(start.owner),
            },
            "annotations": {
                **settings.annotations,
                OWNER: start.owner,
                SPEC_HASH: spec_hash(spec),
                # Its queries and its database would be lost with it.
                "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
                "karpenter.sh/do-not-disrupt": "true",
            },
        },
        "spec": spec,
    }


def _spec(start: Start, image: str, settings: PodSettings) -> Object:
    spec: Object = {
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
        "containers": [_container(start, image)],
        "volumes": [{"name": "data", "emptyDir": {"sizeLimit": quantity(start.disk_bytes)}}],
    }
    place(spec, settings)
    return spec


def place(spec: Object, settings: PodSettings) -> None:
    """Adds where pods may run, as `[runtime.kubernetes]` has it."""
    if settings.node_selector:
        spec["nodeSelector"] = settings.node_selector
    if settings.tolerations:
        spec["tolerations"] = [one.as_spec() for one in settings.tolerations]
    if settings.affinity:
        spec["affinity"] = settings.affinity
    if settings.priority_class:
        spec["priorityClassName"] = settings.priority_class
    if settings.runtime_class:
        spec["runtimeClassName"] = settings.runtime_class
    if settings.image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.image_pull_secrets]


def _container(start: Start, image: str) -> Object:
    memory, disk = quantity(start.memory_bytes), quantity(start.disk_bytes)
    return {
        "name": CONTAINER,
        "image": image,
        "args": ["instance", json.dumps(_line(start), separators=(",", ":"))],
        "ports": [{"name": "http", "containerPort": PORT}],
        "resources": {
            "requests": {"cpu": str(start.cpu), "memory": memory, "ephemeral-storage": disk},
            "limits": {"memory": memory, "ephemeral-storage": disk},
        },
        # More memory comes without a restart, which would lose the database.
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": "NotRequired"}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [
            {"name": "data", "mountPath": FOLDER, "subPath": "instance"},
            {"name": "data", "mountPath": "/tmp", "subPath": "tmp"},  # noqa: S108  a volume of this pod alone
        ],
        # On the process alone: how far its load is, is the start's business.
        "startupProbe": {"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 1, "failureThreshold": 240},
    }


def _line(start: Start) -> Object:
    return {
        "protocol": PROTOCOL,
        "id": str(start.instance),
        "generation": str(start.generation),
        "name": start.name,
        "wrapper_type": start.wrapper_type,
        "memory_bytes": start.memory_bytes,
        "cpu": start.cpu,
        "disk_bytes": start.disk_bytes,
        "token_sha256": start.token_sha256,
        "folder": FOLDER,
        "host": "0.0.0.0",  # noqa: S104  a pod's address is its own; users reach it through the control plane alone
        "port": PORT,
        "landlock": "where_there",
        "in_pod": True,
    }


def quantity(size: int) -> str:
    """Whole MiB, rounded up."""
    return f"{-(-size // MIB)}Mi"


def bytes_of(text: str) -> int:
    """As the API server writes a quantity of memory."""
    units = {
        "Ki": 1 << 10,
        "Mi": 1 << 20,
        "Gi": 1 << 30,
        "Ti": 1 << 40,
        "k": 10**3,
        "M": 10**6,
        "G": 10**9,
        "T": 10**12,
    }
    for unit, factor in units.items():
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * factor)
    return int(float(text))


def label_value(text: str) -> str:
    """What of it a label may hold; the annotation has the whole."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", text)[:63].strip("-_.")
