"""What `kubectl apply -k` would make of each overlay: the parts that stand in several places agree, and nothing is secret."""

import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from paddock.config import load
from paddock.ingest.settings import IngestSettings
from paddock.known_kinds import all_kinds
from paddock.serve import QUERIES_END_WITHIN
from tests.kubernetes.rendered import (
    EVERYTHING,
    HOME,
    INGEST,
    INSTANCES,
    OVERLAYS,
    Object,
    environment,
    of_kind,
    one,
    pod_spec,
    rendered,
    workloads,
)

ROOT = Path(__file__).parents[2]
QUERY = re.compile(r"SELECT (paddock_backlog|paddock_unfinished)\(ARRAY\[('[^']+'(?:, ?'[^']+')*)\]\)")
Render = Callable[[str], list[Object]]


@pytest.fixture
def render(tmp_path: Path) -> Render:
    return lambda overlay: rendered(overlay, tmp_path)


@pytest.fixture(params=OVERLAYS)
def objects(request: pytest.FixtureRequest, render: Render) -> list[Object]:
    return render(request.param)


def words(text: str) -> set[str]:
    return {word.strip().strip("'") for word in text.split(",")}


def test_a_scaler_asks_for_exactly_the_kinds_that_its_workers_offer(objects: list[Object]) -> None:
    scaled: set[str] = set()
    for scaler in of_kind(objects, "ScaledObject", "ScaledJob"):
        is_job = scaler["kind"] == "ScaledJob"
        workload = scaler if is_job else one(objects, "Deployment", scaler["spec"]["scaleTargetRef"]["name"])
        [container] = pod_spec(workload)["containers"]
        [trigger] = scaler["spec"]["triggers"]
        asked = QUERY.fullmatch(trigger["metadata"]["query"])
        assert asked is not None
        assert asked[1] == ("paddock_unfinished" if is_job else "paddock_backlog")
        assert words(asked[2]) == words(environment(container)["PADDOCK_WORKER_KINDS"])
        scaled |= words(asked[2])
        login = one(objects, "TriggerAuthentication", trigger["authenticationRef"]["name"])
        assert login["spec"]["secretTargetRef"] == [{"parameter": "connection", "name": "scaler-db", "key": "url"}]
    told = one(objects, "ConfigMap", "control-plane-config")["data"].get("PADDOCK_SCALED_KINDS", "")
    assert scaled == (words(told) if told else set())


def test_instances_run_the_image_of_the_control_plane_and_so_does_everything(objects: list[Object]) -> None:
    images = {container["image"] for _, container in workloads(objects)}
    told = [environment(container).get("PADDOCK_KUBERNETES_IMAGE") for _, container in workloads(objects)]
    assert len(images) == 1
    assert images == {image for image in told if image is not None}
    assert all(":" in image for image in images), "a tag that says which"


def test_export_workers_come_from_zero_and_are_never_taken_while_they_work(render: Render) -> None:
    objects = render("overlays/production")
    deployment = one(objects, "Deployment", "export-worker")
    assert "replicas" not in deployment["spec"], "each apply would set them back"
    scaler = one(objects, "ScaledObject", "export-worker-scaler")["spec"]
    assert (scaler["minReplicaCount"], scaler["maxReplicaCount"]) == (0, 5)
    assert (scaler["pollingInterval"], scaler["cooldownPeriod"]) == (10, 300)
    assert scaler["fallback"] == {"failureThreshold": 3, "replicas": 1, "behavior": "currentReplicasIfHigher"}
    behavior = scaler["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior == {"scaleDown": {"selectPolicy": "Disabled"}}
    assert scaler["triggers"][0]["metadata"]["targetQueryValue"] == "10"
    assert one(objects, "Deployment", "describe-worker")["spec"]["replicas"] == 1
    assert one(objects, "Deployment", "control-plane")["spec"]["replicas"] == 2


def test_a_control_plane_that_stops_has_the_time_that_queries_have(objects: list[Object]) -> None:
    spec = pod_spec(one(objects, "Deployment", "control-plane"))
    [container] = spec["containers"]
    pause = timedelta(seconds=container["lifecycle"]["preStop"]["sleep"]["seconds"])
    assert timedelta(seconds=spec["terminationGracePeriodSeconds"]) >= pause + QUERIES_END_WITHIN + timedelta(
        seconds=10
    )


def test_each_object_is_in_its_namespace(objects: list[Object]) -> None:
    """kustomize's `namespace:` would take the others along."""
    for found in objects:
        if found["kind"] == "Namespace":
            assert found["metadata"]["name"] in (HOME, INSTANCES, INGEST)
            assert found["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
        elif found["kind"] in ("Role", "RoleBinding", "ResourceQuota"):
            assert found["metadata"]["namespace"] in (INSTANCES, INGEST)
        elif found["kind"] != "NetworkPolicy":
            assert found["metadata"]["namespace"] == HOME, found["metadata"]["name"]
    for binding in of_kind(objects, "RoleBinding"):
        [subject] = binding["subjects"]
        assert (subject["name"], subject["namespace"]) == (binding["metadata"]["name"], HOME)
    assert {found["kind"] for found in objects}.isdisjoint({"ClusterRole", "ClusterRoleBinding", "Secret", "Ingress"})


def test_every_secret_that_is_named_is_made_in_the_guide_and_workers_have_none_of_the_database(
    objects: list[Object],
) -> None:
    guide = (ROOT / "docs" / "kubernetes.md").read_text()
    for found, container in workloads(objects):
        named = set(
            re.findall(
                r"'(?:secretName|secretKeyRef|secretRef)': (?:'([^']+)'|\{[^}]*'name': '([^']+)')", str(pod_spec(found))
            )
        )
        secrets = {first or second for first, second in named}
        assert secrets
        for secret in secrets:
            assert f"create secret generic {secret} " in guide, secret
        name = found["metadata"]["name"]
        assert ("control-plane-db" in secrets) == (name == "control-plane")
        assert pod_spec(found)["enableServiceLinks"] is False
        asks_the_cluster = name in ("control-plane", "ingest-worker")
        assert pod_spec(found)["automountServiceAccountToken"] == asks_the_cluster
        assert container["securityContext"]["readOnlyRootFilesystem"] is True


def test_ingest_is_offered_by_a_worker_of_its_own_whose_jobs_reach_the_control_plane(
    render: Render, tmp_path: Path
) -> None:
    objects = render(EVERYTHING)
    [container] = pod_spec(one(objects, "Deployment", "ingest-worker"))["containers"]
    told = environment(container)
    (tmp_path / "paddock.toml").write_text(one(objects, "ConfigMap", "paddock-config")["data"]["paddock.toml"])
    config = load(told | {"PADDOCK_CONFIG": str(tmp_path / "paddock.toml")}, tmp_path)
    known = {kind.name for kind in all_kinds(config)}
    assert (
        set(config.worker_kinds or ()) == {"run_ingester:kubernetes", "run_hooks:kubernetes", "publish_batch"} & known
    )
    assert config.concurrency == 100
    assert config.of(IngestSettings).kubernetes_ingest_namespace == INGEST
    # By its short name the Service is found in its own namespace alone.
    assert config.of(IngestSettings).transfer_url == f"http://control-plane.{HOME}:8080"
    quota = next(found for found in of_kind(objects, "ResourceQuota") if found["metadata"]["namespace"] == INGEST)
    assert int(quota["spec"]["hard"]["pods"]) == config.concurrency


def test_what_they_are_told_is_what_paddock_knows(objects: list[Object], tmp_path: Path) -> None:
    """Names of settings, the configuration file and kinds: a wrong one stops the start."""
    (tmp_path / "paddock.toml").write_text(one(objects, "ConfigMap", "paddock-config")["data"]["paddock.toml"])
    shared = one(objects, "ConfigMap", "control-plane-config")["data"]
    for found, container in workloads(objects):
        told = environment(container) | {"PADDOCK_CONFIG": str(tmp_path / "paddock.toml")}
        if found["metadata"]["name"] == "control-plane":
            told |= shared
        config = load(told, tmp_path)
        if found["metadata"]["name"] == "export-worker":
            assert config.worker_kinds == ("export",)
            assert config.server == "http://control-plane:8080"
    known = {kind.name for kind in all_kinds(load({}, tmp_path / "nowhere"))}
    assert {"export", "describe", "metadata"} <= known
    assert len([name for name in shared if name.startswith("GRAPH_OLAP_")]) == 6


def test_the_image_has_two_stages_a_pinned_base_and_hashes() -> None:
    lines = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^ARG BASE=\S+:[\w.]*\d[\w.-]*$", lines, re.MULTILINE), "a tag with a version"
    assert re.findall(r"^FROM (\S+)", lines, re.MULTILINE) == ["${BASE}", "${BASE}"]
    assert "--require-hashes" in lines
    last = lines.rpartition("\nFROM ")[2]
    assert "\nUSER 10001:10001\n" in last
    assert 'ENTRYPOINT ["tini", "--", "paddock"]' in last
    assert "pip" not in last
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert "!tests" not in ignored
