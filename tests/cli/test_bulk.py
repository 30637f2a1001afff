"""`paddock jobs cancel` and `retry` of all jobs that match a filter."""

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from paddock.cli.jobs.bulk import _plan, summary
from paddock.client import Client
from tests.cli.conftest import Terminal
from tests.processes.running import Up, clean_environment

LATER = "2100-01-01T00:00:00Z"


@pytest.fixture
def tag() -> str:
    return f"bulk-{uuid4().hex[:8]}"


def submit(client: Client, tag: str, count: int) -> list[str]:
    work = {"kind": "probe", "run_at": LATER, "tags": [tag]}
    return [str(job["id"]) for job in client.submit_many([work] * count)]


def statuses(client: Client, tag: str) -> list[str]:
    return [job["status"] for job in client.list(tag=tag)]


def test_all_that_match_are_cancelled(terminal: Terminal, client: Client, tag: str) -> None:
    ids = submit(client, tag, 3)
    [other] = submit(client, f"{tag}-other", 1)

    said = terminal("jobs", "cancel", "--tag", tag, "--kind", "probe", "--yes", "--wait", "--reason", "not needed")

    assert said.code == 0, said.err
    assert said.lines[-1] == "3 cancelled."
    assert statuses(client, tag) == ["cancelled"] * 3
    assert client.get(other)["status"] == "pending"
    assert client.timeline(ids[0])[-1]["reason"] == "not needed"
    client.cancel(other)


def test_all_that_match_are_retried_once(terminal: Terminal, client: Client, tag: str) -> None:
    ids = submit(client, tag, 2)
    for id in ids:
        client.cancel(id)

    words = ("jobs", "retry", "--tag", tag, "--since", "1h", "--yes", "--wait")
    assert terminal(*words).lines[-1] == "2 retried."
    assert {job["retry_of"] for job in client.list(tag=tag)} == {None, *ids}
    assert terminal(*words).lines[-1] == "0 retried; 2 skipped (retried already)."
    terminal("jobs", "cancel", "--tag", tag, "--yes", "--wait")


def test_in_a_pipe_nothing_is_done_without_yes(terminal: Terminal, client: Client, tag: str) -> None:
    submit(client, tag, 2)

    said = terminal("jobs", "cancel", "--tag", tag)

    assert (said.code, said.out) == (2, "")
    assert said.err.splitlines() == [
        f"2 live jobs match (tag {tag}). Each will be cancelled, running or not.",
        "Nothing was done, because there is no terminal to ask on: --yes skips the question.",
    ]
    assert statuses(client, tag) == ["pending", "pending"]
    terminal("jobs", "cancel", "--tag", tag, "--yes", "--wait")


@pytest.mark.parametrize(
    ("count", "said"),
    [
        ("10,000+", "At least 10,000 live jobs match (tag t)."),
        ("0+", "Whether any live job matches (tag t) takes too long to count."),
    ],
)
def test_what_was_not_counted_to_the_end_is_said(count: str, said: str) -> None:
    plan = _plan("cancel", {"count": count}, {"filter": {"tag": "t"}})
    assert plan == f"{said} Each will be cancelled, running or not."


def test_a_dry_run_only_counts(terminal: Terminal, client: Client, tag: str) -> None:
    [id] = submit(client, tag, 1)
    said = terminal("jobs", "cancel", "--tag", tag, "--dry-run", "--yes")
    assert (said.code, said.out) == (0, f"1 live job matches (tag {tag}). Each will be cancelled, running or not.\n")
    assert terminal("jobs", "cancel", "--tag", tag, "--dry-run", "-o", "json").json["count"] == 1
    assert statuses(client, tag) == ["pending"]
    client.cancel(id)


def test_without_wait_it_names_the_job_that_does_it(terminal: Terminal, client: Client, tag: str) -> None:
    submit(client, tag, 1)
    id = terminal("jobs", "cancel", "--tag", tag, "--yes", "-o", "name").out.strip()
    ended = client.wait(id)
    assert (ended["kind"], ended["status"], ended["result"]["done"]) == ("bulk", "completed", 1)


def test_the_answer_for_programs_has_the_result(terminal: Terminal, client: Client, tag: str) -> None:
    submit(client, tag, 2)
    ended = terminal("jobs", "cancel", "--tag", tag, "--yes", "--wait", "-o", "json").json
    assert ended["result"] == {"matched": 2, "done": 2, "skipped": 0, "refused": {}}


def test_nothing_that_matches_is_said_and_is_no_failure(terminal: Terminal, tag: str) -> None:
    said = terminal("jobs", "retry", "--tag", tag)
    assert (said.code, said.err) == (0, "")
    assert said.out == f"No failed or cancelled job matches (tag {tag}): there is nothing to retry.\n"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((), "Which jobs?"),
        (("--since", "1h"), "Nothing but time narrows this filter"),
        (("--status", "gone"), "There is no status 'gone'"),
        (("--since", "yesterday"), "'yesterday' is no time and no duration"),
        (("--group", "us"), "--group"),
        (("00000000-0000-7000-8000-000000000000", "--kind", "probe"), "or give a filter; not both"),
        (("00000000-0000-7000-8000-000000000000", "--dry-run"), "go with a filter, not with ids"),
        (("00000000-0000-7000-8000-000000000000", "--wait"), "go with a filter, not with ids"),
    ],
)
@pytest.mark.parametrize("action", ["cancel", "retry"])
def test_what_is_not_clear_is_exit_code_2(
    terminal: Terminal, action: str, words: tuple[str, ...], sentence: str
) -> None:
    said = terminal("jobs", action, *words)
    assert said.code == 2
    assert sentence in said.err


@pytest.fixture
def draining(terminal: Terminal) -> Iterator[None]:
    terminal("drain", "on")
    yield
    terminal("drain", "off")


@pytest.mark.usefixtures("draining")
def test_a_retry_in_drain_mode_is_refused(terminal: Terminal, client: Client, tag: str) -> None:
    terminal("drain", "off")
    [id] = submit(client, tag, 1)
    client.cancel(id)
    terminal("drain", "on")
    assert terminal("jobs", "retry", "--tag", tag, "--yes").code == 4


def test_what_was_refused_is_told_with_its_code() -> None:
    result = {"done": 1200, "skipped": 1, "refused": {"engine_role_not_allowed": 2}}
    assert summary("cancel", result) == (
        "1,200 cancelled; 1 skipped (ended in the meantime); 2 refused [engine_role_not_allowed]."
    )


@pytest.mark.parametrize(("reply", "code", "status"), [("n", 1, "pending"), ("", 1, "pending"), ("y", 0, "cancelled")])
def test_on_a_terminal_it_asks_first(
    up: Up, client: Client, tag: str, tmp_path: Path, reply: str, code: int, status: str
) -> None:
    submit(client, tag, 2)

    ended, said = on_a_terminal(reply, "jobs", "cancel", "--tag", tag, "--data", str(up.data), folder=tmp_path)

    assert f"2 live jobs match (tag {tag})." in said
    assert "Go on? [y/N]" in said
    assert ("2 cancelled." in said) == (status == "cancelled")
    assert ("Nothing was cancelled." in said) == (status == "pending")
    assert (ended, statuses(client, tag)) == (code, [status] * 2)
    for job in client.list(tag=tag, status="pending"):
        client.cancel(job["id"])


def on_a_terminal(reply: str, *words: str, folder: Path) -> tuple[int, str]:
    """Answers the first question; exit code and everything that was shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "paddock.cli", *words],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=clean_environment(TERM="xterm", COLUMNS="120"),
        cwd=folder,
        start_new_session=True,
    )
    os.close(theirs)
    said, answered = b"", False
    try:
        while content := _read(ours):
            said += content
            if not answered and b"[y/N]" in said:
                os.write(ours, f"{reply}\n".encode())
                answered = True
        return process.wait(60), said.decode()
    finally:
        process.kill()
        process.wait()
        os.close(ours)


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other side has closed
        return b""
