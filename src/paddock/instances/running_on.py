"""The runtime that this process's configuration names."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.api.errors import ApiError
from paddock.config import Config, ConfigError
from paddock.instances.settings import InstanceSettings
from paddock.runtimes.runtime import Runtime

if TYPE_CHECKING:
    from paddock.runtimes.kubernetes.installation import Installation

# By the kind of runtime and the data folder, made on first use.
OPENED: dict[tuple[str, Path], Runtime] = {}


def runtime_of(config: Config) -> Runtime | None:
    """None: instances cannot run here."""
    kind = config.of(InstanceSettings).runtime
    if kind == "none":
        return None
    found = OPENED.get((kind, config.data))
    if found is None:
        found = OPENED[kind, config.data] = _local(config) if kind == "local" else _kubernetes(config)
    return found


def _local(config: Config) -> Runtime:
    from paddock.runtimes.local import LocalRuntime

    return LocalRuntime(config.data / "instances")


def _kubernetes(config: Config) -> Runtime:
    from paddock.runtimes.kubernetes.access import find_access
    from paddock.runtimes.kubernetes.client import Kubernetes
    from paddock.runtimes.kubernetes.installation import Installation, home_of
    from paddock.runtimes.kubernetes.owned import OwnedRuntime
    from paddock.runtimes.kubernetes.runtime import KubernetesRuntime
    from paddock.storage.store import open_managed

    settings = config.of(InstanceSettings)
    if settings.kubernetes_image is None:
        raise ConfigError(
            "PADDOCK_RUNTIME=kubernetes needs PADDOCK_KUBERNETES_IMAGE: the image of this control plane, which instances run too."
        )
    if not config.has_store or open_managed(config).local is not None:
        raise ConfigError(
            f"PADDOCK_OBJECT_STORE ({config.object_store}) is no place that a pod could read: with PADDOCK_RUNTIME=kubernetes it"
            " is a bucket (s3://, gs:// or az://), of which instances get signed links."
        )
    client = Kubernetes(find_access(os.environ, settings.kubernetes_context))
    namespace, image = settings.kubernetes_instance_namespace, settings.kubernetes_image

    def made(id: str) -> KubernetesRuntime:
        return KubernetesRuntime(client, namespace=namespace, image=image, settings=settings.pods, installation=id)

    return OwnedRuntime(Installation(client, namespace=namespace, home=home_of(settings.release)), made)


def installation_of(config: Config) -> "Installation | None":
    """None: instances run on no cluster."""
    if config.of(InstanceSettings).runtime != "kubernetes":
        return None
    from paddock.runtimes.kubernetes.owned import OwnedRuntime

    runtime = runtime_of(config)
    return runtime.installation if isinstance(runtime, OwnedRuntime) else None


def needed_runtime(config: Config) -> Runtime:
    found = runtime_of(config)
    if found is None:
        raise ApiError(
            409,
            "no_runtime",
            "No instances can run here: this Paddock has no runtime.",
            hint="Set PADDOCK_RUNTIME to kubernetes, or to local where this control plane may start processes.",
        )
    return found
