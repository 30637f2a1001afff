"""The alert rules and the dashboards: each fires on what it is for, and names only metrics that are there."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from paddock.background.declared import BY_NAME
from paddock.metrics import Metrics
from paddock.pass_metrics import PassMetrics

FOLDER = Path(__file__).parents[2] / "deploy" / "components" / "monitoring"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
TITLES = ["Background Jobs Overview", "Export Reconciliation", "Lifecycle", "Reconciliation"]
NAME = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")
NO_METRICS = {"job_name", "resource_type", "histogram_quantile", "too_many", "__rate_interval", "rate_interval"}

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool (Debian: prometheus)")


def known() -> set[str]:
    registry = CollectorRegistry()
    Metrics(registry), PassMetrics(registry)
    names: set[str] = set()
    for family in registry._names_to_collectors:
        names.add(family)
    return names


def expressions(board: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in board["panels"] for target in panel["targets"]]


def rules() -> list[dict[str, Any]]:
    return [rule for group in rule_groups() for rule in group["rules"]]


def rule_groups() -> list[dict[str, Any]]:
    """Those of the PrometheusRule: what Prometheus itself reads is its `spec`."""
    groups: list[dict[str, Any]] = yaml.safe_load((FOLDER / "rules.yaml").read_text())["spec"]["groups"]
    return groups


@needs_promtool
def test_each_alert_fires_on_what_it_is_for_and_on_nothing_near_it(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups()}))
    shutil.copy(FOLDER / "rules_test.yaml", tmp_path)
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "rules_test.yaml"]):
        ran = subprocess.run(["promtool", *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_is_tested_and_leads_to_its_paragraph() -> None:
    tests = yaml.safe_load((FOLDER / "rules_test.yaml").read_text())["tests"]
    fires = {case["alertname"] for test in tests for case in test["alert_rule_test"] if case.get("exp_alerts")}
    assert fires == {rule["alert"] for rule in rules()}
    docs = (FOLDER.parents[2] / "docs" / "background-jobs.md").read_text()
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", head.lower()).replace(" ", "-")
        for head in re.findall(r"^#+ (.*)$", docs, re.MULTILINE)
    }
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert (page, anchor in anchors) == ("docs/background-jobs.md", True), rule["alert"]


def test_the_page_of_each_job_leads_to_a_paragraph_that_is_there() -> None:
    docs = (FOLDER.parents[2] / "docs" / "background-jobs.md").read_text()
    for job in BY_NAME.values():
        assert f"\n## {job.symptom}\n" in docs, job.name


def test_rules_and_dashboards_name_only_metrics_that_are_there() -> None:
    names = known()
    asked = [rule["expr"] for rule in rules()]
    asked += [expr for path in DASHBOARDS for expr in expressions(json.loads(path.read_text()))]
    for expr in asked:
        for name in set(NAME.findall(expr)) - NO_METRICS:
            assert name in names, f"{name} in {expr}"


def test_dashboards_are_plain_and_choose_their_data_source() -> None:
    boards = [json.loads(path.read_text()) for path in DASHBOARDS]
    assert sorted(board["title"] for board in boards) == TITLES
    assert len({board["uid"] for board in boards}) == len(boards)
    for board in boards:
        assert [variable["type"] for variable in board["templating"]["list"]] == ["datasource"]
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
        for panel in board["panels"]:
            assert panel["type"] in ("timeseries", "stat")
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


@needs_promtool
def test_every_expression_of_the_dashboards_is_one(tmp_path: Path) -> None:
    found = [
        {"record": f"panel:{n}", "expr": expr.replace("$__rate_interval", "5m")}
        for n, expr in enumerate(e for path in DASHBOARDS for e in expressions(json.loads(path.read_text())))
    ]
    (tmp_path / "panels.yaml").write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": found}]}))
    ran = subprocess.run(
        ["promtool", "check", "rules", "panels.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_promtool_complains_of_the_two_heritage_gauges_and_of_nothing_else() -> None:
    registry = CollectorRegistry()
    Metrics(registry)
    passed = PassMetrics(registry)
    # What the database tells has no series before it was read.
    passed.export_jobs("pending").set(0)
    passed.schema_entries("table").set(0)
    passed.export_queue_depth.set(0)
    text = generate_latest(registry)
    ran = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    said = (ran.stdout + ran.stderr).decode()
    complaints = {line.split(" ", 1)[0] for line in said.splitlines() if line.strip()}
    assert complaints == {"export_jobs_by_status_total", "schema_cache_entries_total"}, said


def test_a_worker_knows_none_of_these_metrics() -> None:
    """Its handlers are loaded, as a worker loads them, in a process of their own."""
    code = """
from prometheus_client import REGISTRY, generate_latest
from paddock.config import Config
from paddock.known_kinds import all_kinds
from paddock.metrics import Metrics
from paddock.exports import handler, resources
from paddock.exports.schema import reading
from paddock.worker import supervisor
Metrics()
all_kinds(Config())
assert "background_job" not in generate_latest(REGISTRY).decode()
assert "paddock_" in generate_latest(REGISTRY).decode()
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
