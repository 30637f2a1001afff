"""`paddock stats` and `paddock audit`."""

from typing import Any

import pytest

from paddock.cli.stats import weighted
from paddock.client import Client
from tests.cli.conftest import Terminal
from tests.processes.running import wait_for


@pytest.mark.slow  # a figure is told when its ten seconds are over
def test_stats_count_what_ended_by_kind(terminal: Terminal, client: Client) -> None:
    good = client.submit("probe_blocking", {"result": 1})["id"]
    bad = client.submit("probe_blocking", {"fail": "The disk is full."})["id"]
    client.wait(good)
    client.wait(bad)

    def counted() -> dict[str, Any] | None:
        told: dict[str, Any] = terminal("stats", "--kind", "probe_blocking", "--range", "15m", "-o", "json").json
        kinds = told["kinds"]
        return told if kinds and kinds[0]["completed"] and kinds[0]["failed"] and told["errors"] else None

    told = wait_for("both are counted", counted)
    [figures] = told["kinds"]
    assert figures["kind"] == "probe_blocking"
    assert figures["per_second"] == pytest.approx(figures["completed"] / 900)
    assert 0 <= figures["wait_p50"] <= figures["wait_p95"]
    assert bad in {error["last_job"] for error in told["errors"]}
    lines = terminal("stats").lines
    assert lines[0].split()[:4] == ["KIND", "COMPLETED", "RATE", "FAILED"]
    assert "probe_blocking" in {line.split()[0] for line in lines if line}
    assert "probe_blocking" in terminal("stats", "-o", "name").lines


def test_stats_say_what_they_do_not_know(terminal: Terminal) -> None:
    unknown = terminal("stats", "--kind", "no_such_kind")
    assert unknown.code == 3
    assert "There is no kind 'no_such_kind'" in unknown.err
    assert terminal("stats", "--range", "30d").code == 2
    assert terminal("stats", "--range", "long").code == 2


@pytest.mark.parametrize(
    ("values", "share", "found"),
    [
        ([], 0.5, None),
        ([(3.0, 1)], 0.95, 3.0),
        ([(float(n), 1) for n in range(1, 101)], 0.5, 50.0),
        ([(float(n), 1) for n in range(1, 101)], 0.95, 95.0),
        ([(9.0, 1), (1.0, 99)], 0.95, 1.0),
        ([(9.0, 10), (1.0, 90)], 0.95, 9.0),
    ],
)
def test_steps_count_by_how_many_jobs_they_had(
    values: list[tuple[float, float]], share: float, found: float | None
) -> None:
    assert weighted(values, share) == found


def test_audit_tells_who_changed_what_and_why(terminal: Terminal) -> None:
    terminal("kinds", "pause", "probe_blocking", "--reason", "the disk is full")
    terminal("kinds", "resume", "probe_blocking")

    words = ("audit", "--subject", "kind:probe_blocking", "--actor", "admin", "--since", "1h")
    resumed, paused = terminal(*words, "--limit", "2", "-o", "json").json
    assert (resumed["action"], paused["action"], paused["reason"]) == ("resume", "pause", "the disk is full")
    header, line = terminal(*words, "--action", "pause", "--limit", "1").lines
    assert header.split() == ["AT", "BY", "ACTION", "SUBJECT", "WHY"]
    assert line.split()[2:] == ["admin", "pause", "kind:probe_blocking", "the", "disk", "is", "full"]


def test_audit_without_a_match_says_so(terminal: Terminal) -> None:
    said = terminal("audit", "--action", "no_such_action")
    assert (said.code, said.out, said.err) == (0, "", "Nothing was changed, or nothing matches.\n")
    assert terminal("audit", "--since", "yesterday").code == 2
