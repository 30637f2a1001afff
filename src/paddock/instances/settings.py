"""The settings of instances. Limits and times are global config: `limits` and `lifetimes` declare them."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, StringConstraints

from paddock.config.settings import Setting, Settings
from paddock.config.values import table
from paddock.runtimes.kubernetes.pod_settings import PodSettings

Namespace = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Pods = Annotated[PodSettings, BeforeValidator(table)]
Words = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
Image = Annotated[str, StringConstraints(pattern=r"^\S+$", max_length=1000)]


class InstanceSettings(Settings):
    runtime: Annotated[Literal["local", "kubernetes", "none"], Setting("runtime")] = "local"
    kubernetes_image: Annotated[Image | None, Setting("kubernetes_image")] = None  # None: not on Kubernetes
    kubernetes_instance_namespace: Annotated[Namespace, Setting("kubernetes_instance_namespace")] = "graph-instances"
    kubernetes_context: Annotated[Words | None, Setting("kubernetes_context")] = None  # None: the current one
    # Tells this control plane from others in its namespace.
    release: Annotated[Namespace, Setting("release")] = "paddock"
    pods_table: Annotated[Pods | None, Setting("runtime_kubernetes", at_top=True)] = None  # None: nothing besides

    @property
    def pods(self) -> PodSettings:
        return self.pods_table or PodSettings()
