"""A real Prometheus scrapes two replicas on which all six background jobs run: whatever dashboards and rules ask is answered."""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.background.settings import BackgroundSettings
from paddock.pass_metrics import JOBS
from tests.background.test_monitoring import DASHBOARDS, FOLDER, NAME, NO_METRICS, expressions, rule_groups, rules
from tests.ports import free_ports
from tests.processes.installation import Installation, until_ready
from tests.processes.running import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="needs prometheus (Debian: prometheus)"),
]
DOCS = FOLDER.parents[2] / "docs" / "background-jobs.md"
OFTEN = {f"PADDOCK_{name.upper()}_JOB_INTERVAL_SECONDS": "1" for name in BackgroundSettings.model_fields}


class Prometheus:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, path: str, **params: str) -> Any:
        address = f"http://127.0.0.1:{self.port}{path}?{urllib.parse.urlencode(params)}"
        with urllib.request.urlopen(address, timeout=30) as answer:
            return json.load(answer)["data"]

    def series(self, expr: str) -> list[Any]:
        found: list[Any] = self.ask("/api/v1/query", query=expr)["result"]
        return found


@contextlib.contextmanager
def prometheus(folder: Path, scraped: list[int]) -> Iterator[Prometheus]:
    [port] = free_ports(1)
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": rule_groups()}))
    targets = [f"127.0.0.1:{one}" for one in scraped]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["rules.yaml"],
        "scrape_configs": [{"job_name": "paddock", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    command = [
        "prometheus", "--config.file=prometheus.yaml", "--storage.tsdb.path=tsdb", "--log.level=warn",
        f"--web.listen-address=127.0.0.1:{port}",
    ]  # fmt: skip
    with (folder / "prometheus.log").open("wb") as log:
        running = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    found = Prometheus(port)

    def ready() -> bool:
        assert running.poll() is None, (folder / "prometheus.log").read_text()
        with contextlib.suppress(OSError):
            return bool(found.ask("/api/v1/targets"))
        return False

    try:
        wait_for("Prometheus answers", ready)
        yield found
    finally:
        running.kill()
        running.wait()


def of_the_docs() -> Callable[..., float]:
    """`wait_for_job_execution` as the page shows it."""
    [block] = [
        code for code in re.findall(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL) if "def wait_for" in code
    ]
    names: dict[str, Any] = {}
    exec(block, names)
    waits: Callable[..., float] = names["wait_for_job_execution"]
    return waits


def test_every_question_of_dashboards_and_rules_is_answered_with_series(installation: Installation) -> None:
    ports = free_ports(2)
    # In the place of the one that is there by itself, an engine that is not cached: nobody is here to read one.
    engines = json.dumps({"duckdb": {"type": "trino", "url": "https://trino.example"}})
    settings = {**OFTEN, "PADDOCK_OBJECT_STORE": str(installation.folder / "store"), "PADDOCK_ENGINES": engines}
    replicas = [installation.serve(port, **settings) for port in ports]
    for port, replica in zip(ports, replicas, strict=True):
        until_ready(port, replica)
    with installation.client(ports[0]) as client, prometheus(installation.folder, ports) as found:
        client.submit("probe")  # nobody offers it: that is a series of two alerts
        wait_for_job_execution = of_the_docs()
        with ThreadPoolExecutor(len(JOBS)) as threads:
            # What the other replica ran is told here at most ten seconds later: all at once, not one after the other.
            waits = [
                threads.submit(wait_for_job_execution, f"http://127.0.0.1:{ports[1]}/metrics", job) for job in JOBS
            ]
            assert all(wait.result() > 0 for wait in waits)

        boards = [expr for path in DASHBOARDS for expr in expressions(json.loads(path.read_text()))]
        metrics = {name for rule in rules() for name in NAME.findall(rule["expr"])} - NO_METRICS
        asked = [expr.replace("$__rate_interval", "10s") for expr in boards] + sorted(metrics)
        silent: list[str] = []

        def all_answered() -> bool:
            silent[:] = [expr for expr in asked if not found.series(expr)]
            return not silent

        try:
            wait_for("every expression has series", all_answered)
        except AssertionError:
            raise AssertionError(f"Without series: {silent}") from None
        both = found.series("count by (job_name) (background_job_last_success_timestamp_seconds)")
        assert {(one["metric"]["job_name"], one["value"][1]) for one in both} == {(job, "2") for job in JOBS}
        judged = [rule for group in found.ask("/api/v1/rules")["groups"] for rule in group["rules"]]
        assert {rule["name"] for rule in judged} == {rule["alert"] for rule in rules()}
        wait_for("each rule was judged", lambda: _judged(found))


def _judged(found: Prometheus) -> bool:
    judged = [rule for group in found.ask("/api/v1/rules")["groups"] for rule in group["rules"]]
    assert not [rule for rule in judged if rule["health"] == "err"]
    return all(rule["health"] == "ok" for rule in judged)
