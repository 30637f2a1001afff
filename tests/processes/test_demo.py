"""The demo keeps its promise, and leaves nothing behind."""

import signal
from pathlib import Path

import pytest

from tests.processes.running import Process, gone, wait_for

pytestmark = pytest.mark.slow


def test_the_demo_ends_each_job_once(tmp_path: Path) -> None:
    demo = Process("demo", "--exit", log=tmp_path / "demo.log")
    try:
        assert demo.wait(110) == 0, demo.said()
    finally:
        demo.end()
    assert "kill -9  the worker local-1" in demo.said()
    assert "The ledger has 8 lines for 8 jobs: each ended exactly once." in demo.said()
    assert "late.parquet   21,581 rows" in demo.said()
    assert "edges/ROUTE    completed" in demo.said()
    assert "shop.sql.zst is whole: sql (sqlite), 3 tables" in demo.said()
    assert "/sign-in#code=" in demo.said()


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
