"""Workers with the kinds of their work alone, as `deploy/` has them: nobody runs doctor's small job, and nothing is broken."""

import pytest

from tests.cli.conftest import Terminal
from tests.processes.running import clean_environment, data_folder, running_up, wait_for


@pytest.mark.usefixtures("here")
def test_a_small_job_that_nobody_runs_is_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    environment = clean_environment(PADDOCK_WORKER_KINDS="probe_blocking") | {"PADDOCK_LEASE_SECONDS": "60"}
    with data_folder() as data, running_up(data, "--port", "0", environment=environment):
        terminal = Terminal(data, capsys)
        wait_for("the worker is registered", lambda: "local-" in terminal("workers", "list").out)
        told = terminal("doctor")
        assert told.code == 0, told.out
        assert "! a job          No job was run: no live worker offers `probe`." in told.out
        assert "--no-probe" in told.out
        assert terminal("jobs", "list", "--kind", "probe", "-o", "json").json == []
