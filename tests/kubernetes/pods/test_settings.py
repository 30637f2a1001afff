"""What may be set for pods, and what stops a start with a sentence."""

from pathlib import Path

import pytest

from paddock.config import Config, ConfigError, load
from paddock.graphs import control_group
from paddock.instances.running_on import runtime_of
from paddock.instances.settings import InstanceSettings
from paddock.runtimes.kubernetes.manifest import bytes_of, label_value, pod_of, quantity
from tests.kubernetes.pods.test_starts import start_of

GOOD = """
[runtime.kubernetes]
node_selector = {pool = "graphs"}
tolerations = [{key = "graphs", operator = "Exists", effect = "NoSchedule"}]
priority_class = "low"
runtime_class = "gvisor"
image_pull_secrets = ["registry"]
labels = {team = "data"}
annotations = {"example.org/cost" = "graphs"}
[runtime.kubernetes.affinity.nodeAffinity]
requiredDuringSchedulingIgnoredDuringExecution = {nodeSelectorTerms = []}
"""


def loaded(folder: Path, text: str = "", **variables: str) -> Config:
    (folder / "paddock.toml").write_text(text)
    return load({f"PADDOCK_{name.upper()}": value for name, value in variables.items()}, folder)


def test_a_table_of_the_file_is_part_of_each_pod(tmp_path: Path) -> None:
    settings = loaded(tmp_path, GOOD, runtime="kubernetes").of(InstanceSettings)
    assert (settings.runtime, settings.kubernetes_instance_namespace) == ("kubernetes", "graph-instances")
    pod = pod_of(start_of(), image="x", installation="i", settings=settings.pods)
    spec = pod["spec"]
    assert spec["nodeSelector"] == {"pool": "graphs"}
    assert spec["tolerations"] == [{"key": "graphs", "operator": "Exists", "effect": "NoSchedule"}]
    assert (spec["priorityClassName"], spec["runtimeClassName"]) == ("low", "gvisor")
    assert spec["imagePullSecrets"] == [{"name": "registry"}]
    assert list(spec["affinity"]) == ["nodeAffinity"]
    assert pod["metadata"]["labels"]["team"] == "data"
    assert pod["metadata"]["annotations"]["example.org/cost"] == "graphs"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[runtime.kubernetes]\nnode_selectors = {}", "runtime.kubernetes in .* has a bad value at node_selectors"),
        ("[runtime.kubernetes]\ntolerations = [{key = 'a', op = 'Exists'}]", "bad value at tolerations.0.op"),
        ("[runtime.kubernetes]\ntolerations = {key = 'a'}", "bad value at tolerations"),
        ("[runtime.kubernetes]\nlabels = {'paddock.io/owner' = 'x'}", "paddock.io/owner is Paddock's own"),
        ("[runtime.kubernetes]\nlabels = {team = 'a b'}", "'a b' is no value of the label team"),
        ("[runtime.kubernets]\nlabels = {}", "runtime in .* has a bad value"),
        ("kubernetes_instance_namespace = 'Graph_Instances'", "kubernetes_instance_namespace"),
        ("kubernetes_image = 'a b'", "kubernetes_image"),
    ],
)
def test_a_bad_value_is_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        loaded(tmp_path, text)


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({}, "needs PADDOCK_KUBERNETES_IMAGE"),
        ({"kubernetes_image": "x"}, "is no place that a pod could read"),
        ({"kubernetes_image": "x", "object_store": "none"}, "is no place that a pod could read"),
        ({"kubernetes_image": "x", "object_store": "s3://bucket"}, "neither a service account in .* nor a kubeconfig"),
    ],
)
def test_what_kubernetes_needs_is_said_at_the_start(
    tmp_path: Path, variables: dict[str, str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    config = loaded(tmp_path, runtime="kubernetes", **variables)
    with pytest.raises(ConfigError, match=sentence):
        runtime_of(config)

    assert quantity(1) == "1Mi"
    assert quantity(3 << 30) == "3072Mi"
    assert [bytes_of(text) for text in ("3Gi", "3072Mi", "1500M", "1024")] == [3 << 30, 3 << 30, 1_500_000_000, 1024]
    assert label_value("Ada Lovelace <ada@example.org>") == "Ada-Lovelace-ada-example.org"
    assert label_value("  ") == ""
    assert len(label_value("x" * 62 + "..y")) <= 63


def test_an_instance_reads_what_its_container_may_have(tmp_path: Path) -> None:
    told = 1 << 30
    assert control_group.memory_limit(told, tmp_path) == told
    (tmp_path / "memory.max").write_text("max\n")
    assert control_group.memory_limit(told, tmp_path) == told
    (tmp_path / "memory.max").write_text(f"{2 << 30}\n")
    (tmp_path / "memory.current").write_text("12345\n")
    assert control_group.memory_limit(told, tmp_path) == 2 << 30  # it grew
    assert control_group.memory_used(told, tmp_path) == 12345
    (tmp_path / "memory.max").write_text(f"{64 << 30}\n")  # the machine's, not its own
    assert control_group.memory_limit(told, tmp_path) == told
    assert control_group.memory_used(told, tmp_path) is None
