"""`paddock instances`: from a snapshot to a graph and gone again, as it is typed."""

from pathlib import Path

import pytest

from tests.cli.conftest import Terminal, interrupted
from tests.instances.flights import client_of
from tests.processes.running import Up

pytestmark = pytest.mark.slow


def test_an_instance_is_made_watched_extended_shared_and_deleted(flights: Up, terminal: Terminal) -> None:
    with client_of(flights) as client:
        snapshot = client.instances.get("flights")["snapshot_id"]
    made = terminal("instances", "create", "--snapshot", snapshot, "--name", "short", "--ttl", "1h", "--watch")
    assert made.code == 0, made.err
    assert made.lines[0].startswith("short  ")
    assert any(line.split()[:2] == ["status", "running"] for line in made.lines)
    assert f'paddock instances query short --data {flights.data} "MATCH' in made.err

    assert "short" in terminal("instances", "list", "--status", "running").out
    shown = terminal("instances", "show", "short", "-o", "json")
    assert shown.json["ttl"] == "PT3600S"
    assert terminal("instances", "extend", "short", "30m", "-o", "json").json["ttl"] == "PT5400S"
    assert "short expires in " in terminal("instances", "extend", "short", "1h").out

    assert "grace" in terminal("instances", "share", "short", "grace").out
    assert terminal("instances", "share", "short", "-o", "name").lines == ["grace"]
    assert terminal("instances", "share", "short", "grace", "--revoke").err == "It is shared with nobody.\n"

    assert "instance.running" in terminal("instances", "events", "short").out
    assert terminal("instances", "logs", "short").code == 0

    gone = terminal("instances", "delete", "short", "--reason", "the workshop is over")
    assert (gone.code, gone.out) == (0, "short is deleted.\n")
    again = terminal("instances", "show", "short")
    assert again.code == 3
    told = terminal("instances", "show", shown.json["id"])
    assert told.code == 3
    assert "was deleted at" in told.err


def test_one_that_fails_says_why_and_what_to_do(flights: Up, terminal: Terminal) -> None:
    twice = {
        "label": "Airport",
        "primary_key": {"name": "code", "type": "STRING"},
        "properties": [],
        "sql": "SELECT 'KFD' AS code FROM range(2)",
    }
    with client_of(flights) as client:
        client.mappings.create("keys twice", [twice])
    said = terminal("instances", "create", "keys twice", "--watch")
    assert said.code == 1
    assert "'KFD' comes twice" in said.out
    assert f"paddock instances logs 'keys twice' --data {flights.data}" in said.err
    assert terminal("instances", "delete", "keys twice").code == 0


def test_a_terminal_shows_a_bar(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.instances.commands.watching.is_terminal", lambda: True)
    said = terminal("instances", "show", "flights", "--watch")
    assert said.code == 0
    assert said.lines[0].startswith("flights ━")


def test_who_stops_watching_is_told_that_it_goes_on(flights: Up, terminal: Terminal, tmp_path: Path) -> None:
    slow = {
        "label": "Number",
        "primary_key": {"name": "n", "type": "INT64"},
        "properties": [],
        "sql": "SELECT count(*)::BIGINT AS n FROM range(1000000) a, range(1000000) b WHERE hash(a.range, b.range) % 7 = 3",
    }
    with client_of(flights) as client:
        client.mappings.create("slow", [slow])
    said = interrupted(flights, tmp_path, "slow  waits", "instances", "create", "slow", "--watch")
    assert "Interrupted here; instance slow goes on at the server." in said
    assert "paddock instances delete slow" in said
    assert terminal("instances", "show", "slow", "-o", "json").json["status"] == "waiting_for_snapshot"
    assert terminal("instances", "delete", "slow").code == 0
