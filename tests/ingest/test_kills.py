"""A worker that is killed while a step is at work loses nothing, and nothing is published twice."""

import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.ingest.conftest import NUMBERS, SEVENS
from tests.processes.running import Up, data_folder, gone, running_up, wait_for

pytestmark = pytest.mark.slow

# Says that it is here, and goes on when it may.
GATE = """
import os, time
open(os.path.join({folder!r}, "at-{name}"), "a").write(f"{{os.getpid()}} ")
while not os.path.exists(os.path.join({folder!r}, "go-{name}")): time.sleep(0.01)
"""
CONFIGURATION = """
[ingest.sources.numbers]
command = [{python!r}, "-S", "numbers_source.py"]
folder = "."
hooks = ["sevens"]
batch_size = 4
[ingest.sources.numbers.config]
total = 10
[ingest.hooks.sevens]
command = [{python!r}, "-S", "sevens_hook.py"]
folder = "."
"""


def prepare(folder: Path, gates: set[str]) -> None:
    for name, file, text in (("fetch", "numbers_source.py", NUMBERS), ("hooks", "sevens_hook.py", SEVENS)):
        gate = GATE.format(folder=str(folder), name=name) if name in gates else ""
        (folder / file).write_text(gate + text)
    (folder / "paddock.toml").write_text(CONFIGURATION.format(python=sys.executable))


def ended(up: Up, run: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        with up.client() as client:
            found: dict[str, Any] = client.request("GET", f"/api/ingest/runs/{run}")["data"]
        return found if found["status"] in ("completed", "failed", "cancelled") else None

    return wait_for("the run ends", look, 120)


def published(up: Up) -> list[int]:
    import pyarrow.parquet as pq

    with up.client() as client:
        files = client.request("GET", "/api/ingest/sources/numbers/files")["data"]
    return sorted(int(id) for file in files for id in pq.read_table(file["path"]).column("id").to_pylist())


@pytest.mark.parametrize("step", ["fetch", "hooks"])
def test_a_worker_killed_while_a_command_runs_loses_nothing(step: str) -> None:
    with data_folder() as data:
        prepare(data.parent, {step})
        with running_up(data, "--port", "0") as up:
            with up.client() as client:
                run = client.request("POST", "/api/ingest/runs", body={"source": "numbers"})["data"]["id"]
            at = data.parent / f"at-{step}"
            wait_for("the command runs", lambda: at.exists() and at.read_text())
            command = psutil.Process(int(at.read_text().split()[0]))
            up.child("worker").kill()
            wait_for("the command is gone", lambda: gone([command]))
            (data.parent / f"go-{step}").touch()

            assert ended(up, run)["status"] == "completed"
            assert published(up) == [n for n in range(1, 11) if n % 7]
            assert ended(up, run)["batches"] == {"published": 3}
