"""How the command line finds its server, and what it says when there is none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli import app
from tests.cli.conftest import Terminal
from tests.processes.running import Up, clean_environment


def test_without_any_server_one_sentence_says_what_to_do(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["jobs", "list"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"No Paddock is running in {here / 'paddock-data'}.",
        "Start one with `paddock up`, or name yours with --server URL or PADDOCK_SERVER.",
    ]


def test_a_server_that_does_not_answer_is_named(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["jobs", "list", "--server", "http://127.0.0.1:1"]) == 1
    assert "No Paddock answers at http://127.0.0.1:1 (address from argument)." in capsys.readouterr().err


def test_a_file_left_by_a_killed_up_is_not_believed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended = subprocess.Popen([sys.executable, "-c", "pass"])
    ended.wait()
    (here / "paddock-data").mkdir()
    (here / "paddock-data" / "server.json").write_text(json.dumps({"url": "http://127.0.0.1:1", "pid": ended.pid}))
    assert app.run(["jobs", "list"]) == 1
    assert "No Paddock is running" in capsys.readouterr().err


def test_the_running_up_of_this_folder_is_found(
    up: Up, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(up.data.parent)
    (up.data.parent / "paddock-data").symlink_to(up.data)
    try:
        assert app.run(["kinds", "list", "-o", "name"]) == 0
    finally:
        (up.data.parent / "paddock-data").unlink()
    assert "probe" in capsys.readouterr().out.split()


def test_environment_and_token_file(
    up: Up, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_SERVER", up.address["url"])
    assert app.run(["kinds", "list"]) == 1
    assert "needs a token" in capsys.readouterr().err

    assert app.run(["kinds", "list", "--token-file", str(up.data / "admin.token"), "-o", "name"]) == 0

    monkeypatch.setenv("PADDOCK_TOKEN", "pdk_wrong")
    assert app.run(["kinds", "list"]) == 1
    err = capsys.readouterr().err
    assert "unknown, revoked or expired" in err
    assert "pdk_wrong" not in err


def test_the_local_token_is_not_sent_to_another_server(up: Up, terminal: Terminal) -> None:
    answer = terminal("kinds", "list", "--server", up.address["url"].replace("127.0.0.1", "localhost"))
    assert answer.code == 1
    assert "needs a token" in answer.err


def test_something_else_than_paddock_is_recognised(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import http.server
    import threading

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        assert app.run(["kinds", "list", "--server", f"http://127.0.0.1:{other.server_port}"]) != 0
        other.shutdown()
    assert "right address" in capsys.readouterr().err


def test_wrong_usage_is_exit_code_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["jbs"], ["jobs", "shw"], ["jobs", "show"], ["tokens", "create", "--role", "king", "--name", "x"]):
        assert app.run(words) == 2, words
        err = capsys.readouterr().err
        assert "Traceback" not in err
        assert "--help" in err
    assert app.run(["jobs", "list", "--knd", "probe"]) == 2
    assert "paddock jobs list --help shows what it takes." in capsys.readouterr().err
    assert app.run(["kinds", "list", "more", "words"]) == 2
    assert "The command does not take this: more words\n" in capsys.readouterr().err


def test_a_bad_setting_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PADDOCK_SERVR", "http://x")
    assert app.run(["jobs", "list"]) == 2
    assert "PADDOCK_SERVR is not a setting" in capsys.readouterr().err


def test_help_needs_less_than_a_quarter_second_of_cpu(tmp_path: Path) -> None:
    code = "import os, sys; from paddock.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "print(sum(os.times()[:2]), file=sys.stderr)"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=clean_environment(), cwd=tmp_path, check=True
    )
    assert float(ended.stderr) < 0.25
    for noun in ("up", "serve", "worker", "jobs", "why", "doctor", "tokens"):
        assert f"\n  {noun} " in ended.stdout


def test_every_command_has_a_help_page(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from paddock.cli.app import build
    from paddock.cli.commands import sections

    built = build()
    for section in sections():
        for command in section.commands:
            # What pods run is no command for people: it is not shown.
            verbs = [
                name for name in built[command.name] if not name.startswith("-") and built[command.name][name].show
            ]
            assert sorted(verbs) == sorted(command.verbs.split()), "the table, the reference and completion know each"
            assert app.run([command.name, "--help"]) == 0
            page = capsys.readouterr().out
            assert f"paddock {command.name}" in page
            for verb in command.verbs.split():
                assert verb in page
                assert app.run([command.name, verb, "--help"]) == 0
                assert f"paddock {command.name} {verb}" in capsys.readouterr().out


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(here: Path, capsys: pytest.CaptureFixture[str], shell: str) -> None:
    assert app.run(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert "paddock" in script
    assert "run-now" in script


def test_a_reader_that_has_seen_enough_is_no_error(up: Up) -> None:
    ended = subprocess.run(
        [
            "bash",
            "-c",
            f"{sys.executable} -m paddock.cli kinds list --data {up.data} | head -n 1; echo ${{PIPESTATUS[0]}}",
        ],
        capture_output=True,
        text=True,
        env=clean_environment(),
        check=True,
    )
    assert ended.stdout.splitlines()[-1] == "0"
    assert ended.stderr == ""
