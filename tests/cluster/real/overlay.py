"""The production overlay as it is, with the few lines that a cluster of one node, without DNS, kube-proxy and a cloud,
needs besides."""

import json
import os
from pathlib import Path

import yaml

from tests.cluster.real.node import GATEWAY

ROOT = Path(__file__).parents[3]
HOME, INSTANCES = "paddock", "graph-instances"
# What the production overlay names; the image is loaded under it.
IMAGE = "registry.example.com/paddock:0.1.0"
NEXT_IMAGE = "registry.example.com/paddock:0.1.1"
CONTROL_PLANE = "10.0.0.80"
SCALED_TO_ZERO_SECONDS = 10
DATABASE_PORT = 25432
WORKERS = ("export-worker", "describe-worker")


def write_overlay(folder: Path, object_store: str) -> None:
    folder.mkdir()
    production = os.path.relpath(ROOT / "deploy" / "overlays" / "production", folder)
    name, _, tag = IMAGE.rpartition(":")
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [production],
        "components": [os.path.relpath(ROOT / "deploy" / "components" / "dump-worker", folder)],
        "images": [{"name": "paddock", "newName": name, "newTag": tag}],
        "patches": [
            _patch("Service", "control-plane", [_add("/spec/clusterIP", CONTROL_PLANE)]),
            _patch(
                "Deployment",
                "control-plane",
                [_add("/spec/template/spec/containers/0/envFrom/-", {"secretRef": {"name": "object-store"}})],
            ),
            *(_patch("Deployment", worker, _of_a_worker()) for worker in WORKERS),
            *(_without_starburst(worker) for worker in WORKERS),
            _patch(
                "ScaledJob",
                "dump-worker",
                [
                    _replace("/spec/pollingInterval", 2),
                    *_of_a_worker("/spec/jobTargetRef/template/spec", "dump-databases"),
                ],
            ),
            # The times of a check: minutes less.
            _patch(
                "ScaledObject",
                "export-worker-scaler",
                [_replace("/spec/pollingInterval", 2), _replace("/spec/cooldownPeriod", SCALED_TO_ZERO_SECONDS)],
            ),
            _patch("ConfigMap", "paddock-config", [_replace("/data/paddock.toml", _toml(object_store))]),
        ],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))


def _of_a_worker(pod: str = "/spec/template/spec", *more: str) -> list[dict[str, object]]:
    alias = {"ip": CONTROL_PLANE, "hostnames": ["control-plane"]}
    secrets = [{"secretRef": {"name": name}} for name in ("object-store", *more)]
    return [
        _add(f"{pod}/hostAliases", [alias]),
        _add(f"{pod}/containers/0/envFrom", secrets),
    ]


def _without_starburst(worker: str) -> dict[str, object]:
    """There is none here, and an engine that cannot be reached is rightly broken for `doctor`."""
    environment = [{"name": f"STARBURST_{what}", "$patch": "delete"} for what in ("URL", "USER", "PASSWORD")]
    containers = [{"name": worker, "env": environment}]
    change = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": worker},
        "spec": {"template": {"spec": {"containers": containers}}},
    }
    return {"target": {"kind": "Deployment", "name": worker}, "patch": json.dumps(change)}


def _toml(object_store: str) -> str:
    return f"""[storage]
object_store = "{object_store}"

[engines.local]
type = "duckdb"

[dumps.databases.shop]
type = "postgres"
url = "postgresql://shop_reader@{GATEWAY}:{DATABASE_PORT}/shop"
password_env = "SHOP_PASSWORD"
"""


def _patch(kind: str, name: str, changes: list[dict[str, object]]) -> dict[str, object]:
    return {"target": {"kind": kind, "name": name}, "patch": json.dumps(changes)}


def _add(path: str, value: object) -> dict[str, object]:
    return {"op": "add", "path": path, "value": value}


def _replace(path: str, value: object) -> dict[str, object]:
    return {"op": "replace", "path": path, "value": value}


def secrets(passwords: dict[str, str], store: dict[str, str], tokens: dict[str, str]) -> list[dict[str, object]]:
    """As docs/kubernetes.md makes them by commands."""

    def url(role: str) -> str:
        return f"postgresql://{role}:{passwords[role]}@{GATEWAY}:{DATABASE_PORT}/paddock"

    contents = {
        "control-plane-db": {"url": url("paddock_app")},
        "scaler-db": {"url": url("paddock_scaler") + "?sslmode=disable"},
        "control-plane-tokens": {
            "root.admin": tokens["admin"],
            "export-worker.worker": tokens["worker"],
            "dump-worker.worker": tokens["dumper"],
        },
        "export-worker-token": {"token": tokens["worker"]},
        "dump-worker-token": {"token": tokens["dumper"]},
        "dump-databases": {"SHOP_PASSWORD": passwords["shop_reader"]},
        "object-store": store,
    }
    return [
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": HOME}, "stringData": content}
        for name, content in contents.items()
    ]
