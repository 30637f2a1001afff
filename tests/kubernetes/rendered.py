"""What `deploy/` is once kustomize has put it together, and the same in the namespaces of a test."""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.cluster.programs import control_plane

Object: TypeAlias = dict[str, Any]

DEPLOY = Path(__file__).parents[2] / "deploy"
HOME, INSTANCES, INGEST = "paddock", "graph-instances", "ingest-jobs"
# Production with all the components that its file offers.
EVERYTHING = "everything"
OVERLAYS = ("overlays/dev", "overlays/production", EVERYTHING)


def rendered(overlay: str, scratch: Path) -> list[Object]:
    folder = _with_everything(scratch) if overlay == EVERYTHING else DEPLOY / overlay
    built = subprocess.run(
        [str(control_plane() / "kubectl"), "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert (built.returncode, built.stderr) == (0, "")
    return [found for found in yaml.safe_load_all(built.stdout) if found is not None]


def _with_everything(scratch: Path) -> Path:
    """As an operator does it: the lines that are comments in production's file are none any more."""
    shutil.copytree(DEPLOY, scratch / "deploy")
    folder = scratch / "deploy" / "overlays" / "production"
    lines = (folder / "kustomization.yaml").read_text().splitlines()
    offered = [line.replace("# - ../../components/", "- ../../components/") for line in lines]
    assert offered != lines
    (folder / "kustomization.yaml").write_text("\n".join(offered))
    return folder


def moved(objects: Sequence[Object], namespaces: Mapping[str, str]) -> list[Object]:
    """The same objects in other namespaces, so that tests that share a cluster do not meet."""
    return [_moved(found, namespaces) for found in objects]


def _moved(found: Object, namespaces: Mapping[str, str]) -> Object:
    metadata = dict(found["metadata"])
    place = "name" if found["kind"] == "Namespace" else "namespace"
    metadata[place] = namespaces[metadata[place]]
    subjects = [subject | {"namespace": namespaces[subject["namespace"]]} for subject in found.get("subjects", ())]
    return found | {"metadata": metadata} | ({"subjects": subjects} if subjects else {})


def one(objects: Sequence[Object], kind: str, name: str) -> Object:
    [found] = [found for found in objects if (found["kind"], found["metadata"]["name"]) == (kind, name)]
    return found


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    return [found for found in objects if found["kind"] in kinds]


def pod_spec(workload: Object) -> Object:
    of: Object = workload["spec"]["jobTargetRef"] if workload["kind"] == "ScaledJob" else workload["spec"]
    spec: Object = of["template"]["spec"]
    return spec


def workloads(objects: Sequence[Object]) -> Iterator[tuple[Object, Object]]:
    """Each Deployment and ScaledJob with its one container."""
    for found in of_kind(objects, "Deployment", "ScaledJob"):
        [container] = pod_spec(found)["containers"]
        yield found, container


def environment(container: Object) -> dict[str, str]:
    """What is said there itself: neither out of a Secret nor a ConfigMap."""
    return {entry["name"]: entry["value"] for entry in container.get("env", ()) if "value" in entry}


def as_text(objects: Sequence[Object]) -> str:
    return str(yaml.safe_dump_all(objects))
