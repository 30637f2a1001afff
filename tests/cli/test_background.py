"""`paddock ops` and the schema cache's part of `paddock engines`, against a running server.

A background job is triggered once a minute at most: each is triggered by one test here."""

import pytest

from paddock.background.commands import ops
from paddock.pass_metrics import JOBS
from tests.cli.conftest import Terminal


def test_the_background_jobs_are_listed(terminal: Terminal) -> None:
    told = terminal("ops", "jobs", "-o", "json").json
    assert {job["job_name"] for job in told} == set(JOBS)
    assert terminal("ops", "jobs", "-o", "name").lines == list(JOBS)
    assert "reconciliation" in terminal("ops", "jobs").out


def test_a_trigger_waits_for_the_pass_and_says_what_it_found(terminal: Terminal) -> None:
    ended = terminal("ops", "trigger", "lifecycle", "--reason", "to see", "--wait")
    assert ended.code == 0, ended.err
    assert "completed" in ended.out


def test_a_trigger_exits_with_1_when_the_pass_failed(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = {"id": "x", "kind": "instance_orchestration", "status": "failed", "error_message": "no list"}
    monkeypatch.setattr(ops, "_ended", lambda _server, _id: failed)
    ended = terminal("ops", "trigger", "instance_orchestration", "--reason", "to see", "--wait")
    assert ended.code == 1
    assert "no list" in ended.out


def test_what_cannot_be_triggered_is_a_sentence(terminal: Terminal) -> None:
    unknown = terminal("ops", "trigger", "sweeping", "--reason", "to see")
    assert unknown.code != 0
    assert "There is no background job 'sweeping'" in unknown.err
    forced = terminal("ops", "trigger", "resource_monitor", "--reason", "to see", "--force")
    assert "reconciliation alone" in forced.err
    by_schedule = terminal("schedules", "run", "resource_monitor")
    assert by_schedule.code != 0
    assert "paddock ops trigger resource_monitor" in by_schedule.err


def test_the_state_is_told(terminal: Terminal) -> None:
    told = terminal("ops", "state", "-o", "json").json
    assert set(told["background_jobs"]) == set(JOBS)
    assert "background" in terminal("ops", "state").out


def test_the_jobs_of_exports_are_listed(terminal: Terminal) -> None:
    assert isinstance(terminal("ops", "export-jobs", "-o", "json").json, list)
    assert terminal("ops", "export-jobs", "--status", "cancelled", "--snapshot", "not-an-id").code != 0


def test_names_are_searched_and_read_again(terminal: Terminal) -> None:
    assert terminal("engines", "search", "nothing is called so").err == "Nothing is called so.\n"
    assert "Give 2 to 200 characters" in terminal("engines", "search", "x").err
    unknown = terminal("engines", "refresh", "warehouse", "--reason", "to see")
    assert "There is no engine 'warehouse'" in unknown.err
    assert terminal("engines", "refresh", "duckdb", "--reason", "to see").code == 0


def test_an_engine_is_browsed_live(terminal: Terminal) -> None:
    found = terminal("engines", "browse", "duckdb", "--live", "-o", "json")
    assert found.code == 0, found.err
