"""The programs of a real Kubernetes control plane and the definitions of others' objects, as tests find them in the cache."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.components import CACHE, missing

VERSION = "1.36.4"
CONTROL_PLANE = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl")
# The program of a real node, and KEDA's; only the long check on one needs them.
NODE = ("kubelet",)
OPERATOR = "keda-operator"
BUILD = "python -m tests.cluster.build"


@dataclass(frozen=True)
class Definitions:
    """Custom resource definitions out of the Go module of the project that owns them. The sum is the one that Go's
    own checksum database knows."""

    name: str
    module: str
    version: str
    sum: str
    folder: str


KEDA = Definitions(
    "keda",
    "github.com/kedacore/keda/v2",
    "v2.21.0",
    "h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
    "config/crd/bases",
)
PROMETHEUS = Definitions(
    "prometheus-operator",
    "github.com/prometheus-operator/prometheus-operator",
    "v0.85.0",
    "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
    "example/prometheus-operator-crd",
)


def control_plane() -> Path:
    """The folder with CONTROL_PLANE. Tests never build it: that takes minutes of all cores."""
    return _cached("kubernetes", VERSION, "a Kubernetes control plane")


def kubelet() -> Path:
    return _cached("kubelet", VERSION, "a kubelet") / "kubelet"


def keda_operator() -> Path:
    return _cached(OPERATOR, KEDA.version, "KEDA's operator") / "operator"


def definitions(of: Definitions) -> Path:
    """The folder with the YAML files, ready for `kubectl apply --server-side`."""
    return _cached(of.name, of.version, f"the definitions of {of.name}")


def etcd() -> Path:
    found = shutil.which("etcd")
    if found is None:
        missing("etcd", "apt-get install etcd-server", "it is not installed")
    return Path(found)


def _cached(name: str, version: str, what: str) -> Path:
    folder = CACHE / f"{name}-{version}"
    if not folder.is_dir():
        missing(what, BUILD, "it was not built on this machine yet")
    return folder
