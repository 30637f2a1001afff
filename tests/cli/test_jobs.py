"""`paddock jobs` and `paddock why` against a running server."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paddock.client import Client
from tests.cli.conftest import Terminal
from tests.processes.running import until_status, wait_for


def submit(terminal: Terminal, **payload: object) -> str:
    answer = terminal("jobs", "submit", "probe", json.dumps(payload), "-o", "name")
    assert answer.code == 0, answer.err
    return answer.out.strip()


def test_submit_answers_in_every_form(terminal: Terminal) -> None:
    assert terminal("jobs", "submit", "probe", "-o", "json").json["kind"] == "probe"
    assert terminal("jobs", "submit", "probe", "-o", "yaml").yaml["kind"] == "probe"
    [id] = terminal("jobs", "submit", "probe", "-o", "name").lines
    assert len(id) == 36
    [line] = terminal("jobs", "submit", "probe").lines
    assert line.split()[1] == "probe"


def test_submit_and_wait_follows_to_the_end(terminal: Terminal) -> None:
    answer = terminal("jobs", "submit", "probe", '{"progress": 4, "sleep_seconds": 0.2, "result": 42}', "--wait")
    assert answer.code == 0
    assert answer.lines[-2].split()[1] == "completed"
    assert answer.lines[-1] == "42"

    answer = terminal("jobs", "submit", "probe", '{"result": 42}', "--wait", "-o", "json")
    assert answer.json["result"] == 42

    answer = terminal("jobs", "submit", "probe", '{"result": {"a": "ü"}}', "--count", "2", "--wait")
    assert [line.split("  ", 1)[1] for line in answer.lines[-2:]] == ['{"a": "ü"}'] * 2


def test_waiting_for_a_job_that_fails_is_exit_code_1_and_says_why(terminal: Terminal) -> None:
    answer = terminal("jobs", "submit", "probe", '{"fail": "The disk is full."}', "--wait")
    assert answer.code == 1
    assert "failed: The disk is full. [probe_failed]" in answer.err
    assert "paddock why" in answer.err


def test_submit_takes_tags_priority_time_and_key(terminal: Terminal) -> None:
    words = [
        "--tag",
        "red",
        "--tag",
        "blue",
        "--priority",
        "4",
        "--run-at",
        "1h",
        "--key",
        "cli-test-key",
        "-o",
        "json",
    ]
    job = terminal("jobs", "submit", "probe", *words).json
    assert (job["tags"], job["priority"], job["status"]) == (["red", "blue"], 4, "pending")
    assert job["due_at"] > job["created_at"]
    terminal("jobs", "cancel", job["id"])


def test_many_of_the_same_in_one_call(terminal: Terminal) -> None:
    made = terminal("jobs", "submit", "probe", "--count", "3", "-o", "json").json
    assert len({job["id"] for job in made}) == 3
    assert terminal("jobs", "watch", *[job["id"] for job in made], "-o", "name").code == 0


def test_a_payload_from_a_file(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "payload.json").write_text('{"result": "from a file"}')
    answer = terminal("jobs", "submit", "probe", "--file", str(tmp_path / "payload.json"), "--wait", "-o", "json")
    assert answer.json["result"] == "from a file"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["probe", "{"], "The payload is not JSON"),
        (["probe", '{"no_such_field": 1}'], "no_such_field"),
        (["no_such_kind"], "no_such_kind"),
        (["probe", "--file", "/no/such/file"], "cannot be read"),
        (["probe", "--run-at", "soon"], "'soon' is no time and no duration"),
    ],
)
def test_what_cannot_be_submitted_is_exit_code_2(terminal: Terminal, words: list[str], told: str) -> None:
    answer = terminal("jobs", "submit", *words)
    assert answer.code == 2
    assert told in answer.err


def test_list_filters_and_shows(terminal: Terminal) -> None:
    job = terminal("jobs", "submit", "probe", '{"fail": "so"}', "--tag", "listed", "--wait", "-o", "json").json
    listed = terminal("jobs", "list", "--tag", "listed", "--status", "failed", "-o", "json").json
    assert [found["id"] for found in listed] == [job["id"]]
    header, line = terminal("jobs", "list", "--tag", "listed", "--status", "failed").lines
    assert header.split()[:3] == ["ID", "KIND", "STATUS"]
    assert header.split()[-1] == "ABOUT"
    assert line.split()[:3] == [job["id"], "probe", "failed"]
    assert "probe_failed" in line
    assert terminal("jobs", "list", "--tag", "listed", "--status", "failed", "-o", "name").lines == [job["id"]]
    assert "probe cleanup" in terminal("jobs", "list", "--tag", "listed").out
    assert terminal("jobs", "list", "--error-code", "probe_failed", "--since", "1h", "--limit", "1").code == 0

    nothing = terminal("jobs", "list", "--tag", "no-such-tag")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No jobs match.\n")
    assert terminal("jobs", "list", "--tag", "no-such-tag", "-o", "json").json == []


@pytest.fixture
def paused(terminal: Terminal) -> Iterator[Callable[[], None]]:
    """Pauses `probe_blocking`, until the test ends."""
    yield lambda: None if terminal("kinds", "pause", "probe_blocking").code == 0 else pytest.fail("not paused")
    terminal("kinds", "resume", "probe_blocking")


def test_list_finds_those_that_wait_for_their_next_try(
    terminal: Terminal, client: Client, paused: Callable[[], None]
) -> None:
    fails = client.submit("probe_blocking", {"fail_transiently": 40, "budget": "cluster"}, tags=["again"])["id"]
    later = terminal("jobs", "submit", "probe", "--run-at", "1h", "--tag", "again", "-o", "name").out.strip()
    wait_for("it has failed", lambda: client.get(fails)["cluster_count"] > 0)
    paused()
    wait_for("it waits for a next try that does not come", lambda: client.get(fails)["status"] == "pending")
    assert terminal("jobs", "list", "--tag", "again", "--retrying", "-o", "name").lines == [fails]
    assert set(terminal("jobs", "list", "--tag", "again", "-o", "name").lines) == {fails, later}
    plan = terminal("jobs", "cancel", "--tag", "again", "--retrying", "--dry-run").out
    assert plan.startswith("1 live job matches (tag again, waiting to retry).")
    for id in (fails, later):
        client.cancel(id)


def test_show_finds_a_job_by_the_beginning_of_its_id(terminal: Terminal) -> None:
    id = terminal("jobs", "submit", "probe", '{"result": {"a": 1}}', "--wait", "-o", "name").out.strip()
    answer = terminal("jobs", "show", id[:26])
    assert answer.code == 0
    assert f"id        {id}"[:3] in answer.out
    assert '{"a": 1}' in answer.out
    assert terminal("jobs", "show", id, "-o", "json").json["result"] == {"a": 1}


def test_a_job_that_is_not_there_is_exit_code_3(terminal: Terminal) -> None:
    nobody = "00000000-0000-7000-8000-000000000000"
    for verb in ("show", "watch", "cancel", "retry", "run-now", "logs", "timeline"):
        answer = terminal("jobs", verb, nobody)
        assert answer.code == 3, verb
        assert "no such job" in answer.err
    assert terminal("why", nobody).code == 3
    assert terminal("jobs", "show", "00000000-0000").code == 3


def test_cancel_then_cancel_again_is_refused(terminal: Terminal) -> None:
    id = submit(terminal, sleep_seconds=600)
    assert terminal("jobs", "cancel", id, "--reason", "not needed").code == 0
    again = terminal("jobs", "cancel", id)
    assert again.code == 4
    why = terminal("why", id)
    assert "was cancelled by admin: not needed." in why.out


def test_retry_makes_a_new_job_once(terminal: Terminal) -> None:
    id = terminal("jobs", "submit", "probe", '{"fail": "so"}', "--wait", "-o", "name").out.strip()
    new = terminal("jobs", "retry", id, "-o", "json").json
    assert new["retry_of"] == id
    assert terminal("jobs", "retry", id).code == 4
    assert f"retried already, as {new['id']}" in terminal("why", id).out.replace("\n  ", " ")


def test_several_at_once_take_the_worst_exit_code(terminal: Terminal) -> None:
    id = submit(terminal, sleep_seconds=600)
    answer = terminal("jobs", "cancel", id, "00000000-0000-7000-8000-000000000000", "-o", "name")
    assert answer.code == 3
    assert answer.lines == [id]


def test_run_now_makes_a_waiting_job_due(terminal: Terminal, client: Client) -> None:
    id = terminal("jobs", "submit", "probe", "--run-at", "1d", "-o", "name").out.strip()
    assert "is not due yet" in terminal("why", id).out
    assert terminal("jobs", "run-now", id).code == 0
    until_status(client, id, "completed")
    assert terminal("jobs", "run-now", id).code == 4


def test_logs_and_timeline(terminal: Terminal) -> None:
    id = terminal("jobs", "submit", "probe", '{"log_lines": 3}', "--wait", "-o", "name").out.strip()
    followed = terminal("jobs", "logs", id, "--follow")
    assert followed.out.count("probe line") == 3
    assert terminal("jobs", "logs", id).out == followed.out
    assert terminal("jobs", "logs", id, "-o", "json").json["chunks"]

    entries = terminal("jobs", "timeline", id, "-o", "json").json
    assert [entry["event"] for entry in entries] == ["enqueued", "claimed", "completed"]
    assert terminal("jobs", "timeline", id).lines[0].split()[:2] == ["AT", "EVENT"]


def test_why_tells_what_happened(terminal: Terminal) -> None:
    id = terminal("jobs", "submit", "probe", '{"fail": "Nobody answered."}', "--wait", "-o", "name").out.strip()
    told = terminal("why", id)
    assert told.code == 0
    assert told.lines[0] == "This probe job failed: Nobody answered. [probe_failed]"
    assert any(line.startswith("→ ") for line in told.lines)
    explained = terminal("why", id, "-o", "json").json
    assert explained["status"] == "failed"
    assert explained["what_to_do"]
    assert explained["steps"][0]["text"] == "asked for by admin"


def test_why_of_a_running_job_names_its_worker(terminal: Terminal, client: Client) -> None:
    id = submit(terminal, sleep_seconds=600, progress=100)
    until_status(client, id, "claimed")
    assert "has been running on local-" in terminal("why", id).out
    terminal("jobs", "cancel", id)
