"""Kinds, workers, schedules, tokens, events, webhooks, drain, doctor, config, version: each against a running server."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from paddock.client import Client, PaddockError
from tests.cli.conftest import Terminal
from tests.processes.running import Up, wait_for


@pytest.fixture
def accepting(terminal: Terminal) -> Iterator[None]:
    yield
    terminal("drain", "off")
    terminal("kinds", "resume", "probe_blocking")


def test_kinds_are_listed_with_their_state(terminal: Terminal) -> None:
    kinds = {kind["name"]: kind for kind in terminal("kinds", "list", "-o", "json").json}
    assert kinds["probe"]["submit"] == ["admin", "ops"]
    assert kinds["webhook"]["internal"]
    assert "probe" in terminal("kinds", "list", "-o", "name").lines


@pytest.mark.usefixtures("accepting")
def test_a_paused_kind_waits_and_why_says_so(terminal: Terminal) -> None:
    assert terminal("kinds", "pause", "probe_blocking", "--reason", "the disk is full").code == 0
    id = terminal("jobs", "submit", "probe_blocking", "-o", "name").out.strip()
    told = terminal("why", id).out.replace("\n", " ")
    assert "admin paused its kind 'probe_blocking' (the disk is full)" in told
    assert "paddock kinds resume probe_blocking" in told
    assert "paused by admin: the disk is full" in terminal("kinds", "list").out
    assert terminal("kinds", "resume", "probe_blocking").out == "probe_blocking is resumed.\n"
    assert terminal("jobs", "watch", id, "-o", "name").code == 0
    assert terminal("kinds", "pause", "no_such_kind").code == 3


@pytest.mark.usefixtures("accepting")
def test_drain_refuses_new_work_with_exit_code_4(terminal: Terminal) -> None:
    assert terminal("drain", "on", "--reason", "upgrade").out == "New work is refused; what is queued goes on.\n"
    refused = terminal("jobs", "submit", "probe")
    assert refused.code == 4
    assert terminal("drain", "off", "-o", "json").json["drained"] is False
    assert terminal("jobs", "submit", "probe").code == 0


def test_workers_are_listed_and_quieted(terminal: Terminal) -> None:
    workers = [worker for worker in terminal("workers", "list", "-o", "json").json if worker["live"]]
    [local] = [worker for worker in workers if worker["worker_id"].startswith("local-")]
    assert "probe" in local["kinds"]
    assert terminal("workers", "quiet", local["worker_id"]).code == 0
    try:
        quiet = [worker["session"] for worker in terminal("workers", "list", "-o", "json").json if worker["quiet"]]
        assert quiet == [local["session"]]
    finally:
        assert terminal("workers", "quiet", local["session"], "--off").code == 0
    assert terminal("workers", "quiet", "nobody").code == 3


def test_schedules_from_creation_to_deletion(terminal: Terminal) -> None:
    made = terminal(
        "schedules", "create", "nightly", "probe", '{"result": 1}', "--cron", "0 3 * * *", "-o", "json"
    ).json
    assert (made["name"], made["cron"], made["enabled"]) == ("nightly", "0 3 * * *", True)
    assert terminal("schedules", "create", "nightly", "probe", "--every", "1h").code == 4
    assert terminal("schedules", "disable", "nightly", "-o", "json").json["enabled"] is False
    assert terminal("schedules", "enable", "nightly", "-o", "json").json["enabled"] is True
    job = terminal("schedules", "run", "nightly", "--reason", "late", "-o", "json").json
    assert job["schedule"] == "nightly"
    assert "nightly" in terminal("schedules", "list", "-o", "name").lines
    assert "0 3 * * *" in terminal("schedules", "list").out
    assert terminal("schedules", "delete", "nightly").out == "nightly is deleted.\n"
    assert terminal("schedules", "delete", "nightly").code == 3


def test_a_schedule_by_interval(terminal: Terminal) -> None:
    assert terminal("schedules", "create", "often", "probe", "--every", "90m").code == 0
    assert re.search(r"often +probe +every 1 h 30 min", terminal("schedules", "list").out)
    terminal("schedules", "delete", "often")
    for words in (["--every", "soon"], [], ["--every", "1h", "--cron", "* * * * *"]):
        assert terminal("schedules", "create", "bad", "probe", *words).code == 2
    assert terminal("schedules", "create", "bad", "probe", "--cron", "x").code == 2


def test_tokens_are_created_listed_and_revoked(terminal: Terminal, up: Up, tmp_path: Path) -> None:
    made = terminal("tokens", "create", "--role", "analyst", "--name", "ada", "--expires", "30d", "-o", "json").json
    assert next(iter(made)) == "token"
    assert made["token"].startswith("pdk_")
    file = tmp_path / "ada.token"
    file.write_text(made["token"])

    far = terminal("tokens", "create", "--role", "analyst", "--name", "bob", "--expires", "9999999d")
    assert (far.code, "further ahead than any date" in far.err) == (2, True)

    as_ada = ("--token-file", str(file), "--server", up.address["url"])
    assert terminal("jobs", "list", *as_ada, data=False).code == 0
    refused = terminal("jobs", "submit", "probe", *as_ada, data=False)
    assert refused.code != 0
    assert terminal("tokens", "list", *as_ada, data=False).code == 4

    listed = terminal("tokens", "list")
    assert "ada" in listed.out
    assert made["token"] not in listed.out
    assert terminal("tokens", "revoke", "ada").out == "ada is revoked.\n"
    assert terminal("jobs", "list", *as_ada, data=False).code == 1
    assert terminal("tokens", "revoke", "ada").code == 3


def test_a_grant_is_an_option_of_its_own_or_a_name_with_a_value(terminal: Terminal) -> None:
    named = ("--database", "shop", "--grant", "databases=lake", "--grant", "engines=duckdb")
    made = terminal("tokens", "create", "--role", "analyst", "--name", "gus", *named, "-o", "json").json
    assert (made["databases"], made["engines"], made["destinations"]) == (["shop", "lake"], ["duckdb"], [])
    for wrong in ("engines", "engines=", "role=admin", "stables=north"):
        said = terminal("tokens", "create", "--role", "analyst", "--name", "eve", "--grant", wrong)
        assert (said.code, said.out) == (2, "")


def test_the_last_admin_token_is_not_revoked(terminal: Terminal) -> None:
    assert terminal("tokens", "revoke", "admin").code == 4


def test_the_first_token_of_a_database_of_ones_own(
    here: Path, dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from paddock.cli import app

    assert app.run(["tokens", "bootstrap"]) == 2
    assert "PADDOCK_DATABASE_URL" in capsys.readouterr().err
    monkeypatch.setenv("PADDOCK_DATABASE_URL", dsn)
    assert app.run(["tokens", "bootstrap", "--name", "first", "-o", "json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["token"].startswith("pdk_")
    assert (made["name"], made["role"]) == ("first", "admin")
    monkeypatch.setenv("PADDOCK_DATABASE_URL", "postgresql://nobody:hush@127.0.0.1:1/none")
    assert app.run(["tokens", "bootstrap"]) == 1
    assert "hush" not in capsys.readouterr().err


def test_a_sign_in_link(terminal: Terminal, up: Up) -> None:
    link = terminal("tokens", "link").out.strip()
    assert link.startswith(f"{up.address['url']}/sign-in#code=")
    assert terminal("tokens", "link", "-o", "json").json["url"] != link


def test_events_and_webhooks(terminal: Terminal, client: Client) -> None:
    made = terminal("webhooks", "create", "https://127.0.0.1:9/hook", "--type", "job.failed", "-o", "json").json
    assert made["secret"]
    listed = terminal("webhooks", "list")
    assert "https://127.0.0.1:9/hook" in listed.out
    assert made["secret"] not in listed.out
    id = terminal("jobs", "submit", "probe", '{"fail": "so"}', "--wait", "-o", "name").out.strip()
    assert "job.failed" in terminal("events", "types", "-o", "name").lines
    misspelt = terminal("webhooks", "create", "https://example.com/", "--type", "job.faild")
    assert misspelt.code == 2
    assert "Did you mean 'job.failed'?" in misspelt.err
    events = terminal("events", "list", "--type", "job.failed", "--subject", id, "-o", "json").json
    assert [event["subject"] for event in events] == [id]
    told = terminal("events", "deliveries", events[0]["id"], "-o", "json").json
    assert [delivery["webhook_id"] for delivery in told] == [made["id"]]
    [again] = terminal("events", "redeliver", events[0]["id"], "-o", "json").json
    assert (again["kind"], again["id"] != told[0]["job_id"]) == ("webhook", True)
    [named] = terminal("events", "redeliver", events[0]["id"], "--webhook", made["id"], "-o", "name").lines
    told = terminal("events", "deliveries", events[0]["id"], "-o", "json").json
    assert {again["id"], named} < {delivery["job_id"] for delivery in told}
    assert terminal("events", "redeliver", str(uuid4())).code == 3
    unheard = terminal("events", "redeliver", events[0]["id"], "--kind", "probe")
    assert unheard.code != 0
    assert "no kind received this event" in " ".join(unheard.err.split())
    assert terminal("webhooks", "test", made["id"], "-o", "json").json["kind"] == "webhook"
    assert terminal("webhooks", "test", made["id"], "--type", "job.failed", "-o", "json").json["kind"] == "webhook"
    assert terminal("webhooks", "edit", made["id"], "--type", "job.*", "--no-active").code == 0
    seen = terminal("webhooks", "show", made["id"], "-o", "json").json
    assert (seen["types"], seen["active"]) == (["job.*"], False)
    assert {"job.failed", "webhook.test"} == {delivery["type"] for delivery in seen["deliveries"]}
    assert "webhook.test" in terminal("webhooks", "show", made["id"]).out
    assert terminal("webhooks", "delete", made["id"]).code == 0
    assert terminal("webhooks", "delete", made["id"]).code == 3
    for job in client.list(kind="webhook", status="pending"):
        with contextlib.suppress(PaddockError):  # it may end by itself meanwhile: its webhook is gone
            client.cancel(job["id"])


def test_doctor_finds_everything_well(terminal: Terminal) -> None:
    wait_for("the worker is registered", lambda: "local-" in terminal("workers", "list").out)
    told = terminal("doctor")
    assert told.code == 0, told.out
    for check in ("server", "database", "migrations", "durability", "clock", "object store", "workers", "a job"):
        assert re.search(rf"^✓ {check} ", told.out, re.MULTILINE), told.out
    findings = terminal("doctor", "--no-probe", "-o", "json").json
    assert {finding["level"] for finding in findings} <= {"ok", "warning"}
    assert "a job" not in {finding["check"] for finding in findings}


@pytest.mark.usefixtures("accepting")
def test_doctor_says_what_to_do(terminal: Terminal) -> None:
    terminal("drain", "on", "--reason", "upgrade")
    terminal("kinds", "pause", "probe_blocking")
    told = terminal("doctor")
    assert told.code == 0
    assert "! drain          New work is refused (upgrade)." in told.out
    assert "paddock drain off" in told.out
    assert "paddock kinds resume probe_blocking" in told.out
    assert "Working, with " in told.lines[-1]


def test_doctor_without_a_server_is_exit_code_1(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from paddock.cli import app

    assert app.run(["doctor"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("✗ server")
    assert "paddock up" in out


def test_doctor_needs_an_operator(terminal: Terminal, up: Up, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(
        terminal("tokens", "create", "--role", "analyst", "--name", "eve", "-o", "json").json["token"]
    )
    told = terminal("doctor", "--token-file", str(tmp_path / "token"), "--server", up.address["url"], data=False)
    assert told.code == 1
    assert "ops or admin" in told.out


def test_config_shows_values_and_sources(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from paddock.cli import app

    monkeypatch.setenv("PADDOCK_DATABASE_URL", "postgresql://paddock:hush@db/paddock")
    assert app.run(["config", "show", "-o", "json"]) == 0
    out = capsys.readouterr().out
    assert "hush" not in out
    settings = {item["name"]: item for item in json.loads(out)}
    assert settings["database_url"] == {"name": "database_url", "value": "********", "source": "PADDOCK_DATABASE_URL"}
    assert settings["port"]["source"] == "default"


def test_version_here_and_there(terminal: Terminal) -> None:
    import paddock

    told = terminal("version", "-o", "json").json
    assert told["version"] == told["server"] == paddock.__version__


def test_serve_and_worker_say_what_they_miss(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from paddock.cli import app

    assert app.run(["serve"]) == 1
    assert "PADDOCK_DATABASE_URL" in capsys.readouterr().err
    assert app.run(["worker"]) == 1
    assert "does not know its control plane" in capsys.readouterr().err
    assert app.run(["worker", "--server", "http://127.0.0.1:1"]) == 1
    assert "has no token" in capsys.readouterr().err


def test_a_worker_waits_only_for_one_job(terminal: Terminal) -> None:
    for words, says in (
        (("--wait", "60s"), "--wait goes with --once"),
        (("--once", "--wait", "soon"), "no duration"),
        (("--once", "--wait", "99999999999999d"), "longer than a duration can be"),
    ):
        told = terminal("worker", *words, data=False)
        assert told.code == 2
        assert says in told.err
