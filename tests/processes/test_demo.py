"""The demo keeps its promise, and leaves nothing behind."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.test_commands import problem
from tests.processes.running import Process, data_folder, gone, wait_for

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_the_demo_ends_each_job_once(tmp_path: Path) -> None:
    with data_folder() as data:
        demo = Process("demo", "--exit", "--data", str(data), log=tmp_path / "demo.log")
        try:
            assert demo.wait(240) == 0, demo.said()
        finally:
            demo.end()
        check_commands(demo.said(), data)
    assert "kill -9  the worker local-1" in demo.said()
    assert "The ledger has 8 lines for 8 jobs: each ended exactly once." in demo.said()
    assert "late.parquet   21,581 rows" in demo.said()
    assert "edges/ROUTE    completed" in demo.said()
    assert said_after(demo.said(), "RETURN length(p)") == ["flights", "airports", "1", "5", "2", "58"]
    assert said_after(demo.said(), "PageRank over all routes")[:5] == ["a.code", "a.city", "percent", "KFD", "Nekadulo"]
    assert "kill -9  the process of flights" in demo.said()
    assert "flights is failed: Process ladybug-wrapper-" in demo.said()
    assert "flights is running." in demo.said()
    assert "200 files became 1, with the same 20,000 rows." in demo.said()
    assert said_after(demo.said(), "A second one, sales.returns")[:4] == [
        "table",
        "lake.sales.returns",
        "health",
        "warning",
    ]
    assert "orders: completed, 2 of 2 batches published" in demo.said(), "a run with a limit"
    assert "the amount is not positive" in demo.said()
    assert "orders: completed, 3 of 3 batches published" in demo.said(), "and the rest"
    assert "shop.sql.zst is whole: sql (sqlite), 3 tables" in demo.said()
    assert "/sign-in#code=" in demo.said()


def said_after(said: str, text: str) -> list[str]:
    """The words of the first three lines of the table behind it."""
    lines = [line for line in said[said.index(text) :].splitlines()[1:] if line]
    return " ".join(lines[:3]).split()


def check_commands(said: str, data: Path) -> None:
    """Each runs as it was printed; of those that ask the server, which is gone, only what they ask is looked at."""
    commands = [line for line in said.splitlines() if line.startswith(f"  {sys.executable} ")]
    verbs = []
    for command in commands:
        words = shlex.split(command)
        ours = words[words.index("paddock.cli") + 1 :] if "paddock.cli" in words else ["read"]
        verbs.append(ours[0])
        if str(data) in words:
            assert problem(ours, whole=True) is None, command
        else:
            done = subprocess.run(["sh", "-c", command], env={"PATH": os.defpath}, capture_output=True, check=False)
            assert done.returncode == 0, (command, done.stderr)
    assert verbs == ["why", "read", "snapshots", "instances", "ingest", "dump"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_the_demo_takes_everything_with_it(tmp_path: Path, number: signal.Signals) -> None:
    demo = Process("demo", log=tmp_path / "demo.log")
    try:
        demo.until_said("Submitted 8 jobs")
        family = demo.children()
        assert len(family) > 4
        demo.signal(number)
        demo.wait(60)
        wait_for("every process is gone", lambda: gone(family))
        assert "Traceback" not in demo.said()
    finally:
        demo.end()
