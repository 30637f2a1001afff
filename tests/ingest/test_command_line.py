"""`paddock ingest` against a running server."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Terminal
from tests.ingest.conftest import NUMBERS, SEVENS
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for

pytestmark = pytest.mark.slow

# Its second batch fails until the file `mended` is there.
PICKY = (
    "import os, sys\n"
    "if os.environ['PADDOCK_BATCH'] == '1' and not os.path.exists(os.path.dirname(__file__) + '/mended'):\n"
    "    print('no such region'); sys.exit(64)\n" + SEVENS
)


@pytest.fixture(scope="module")
def up() -> Iterator[Up]:
    with data_folder() as data:
        folder = data.parent
        for name, text in (("numbers", NUMBERS), ("picky", PICKY), ("broken", "import sys; sys.exit(64)")):
            (folder / f"{name}.py").write_text(text)

        def source(name: str, total: int, **more: object) -> dict[str, object]:
            command = [sys.executable, "-S", str(folder / f"{name}.py")]
            return {"command": command, "batch_size": 4, "config": {"total": total}, **more}

        tables = {
            "numbers": source("numbers", 10, hooks=["picky"], description="Numbers"),
            "few": source("numbers", 3),
            "broken": source("broken", 1),
            "never": source("numbers", 1),
        }
        environment = clean_environment(
            PADDOCK_LEASE_SECONDS="60",
            PADDOCK_INGEST_SOURCES=json.dumps(tables),
            PADDOCK_INGEST_HOOKS=json.dumps({"picky": {"command": source("picky", 0)["command"]}}),
        )
        with running_up(data, "--port", "0", environment=environment) as running:
            running.child("worker")
            yield running


@pytest.fixture
def terminal(up: Up, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name in ("PADDOCK_SERVER", "PADDOCK_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return Terminal(up.data, capsys)


def test_a_run_is_watched_read_mended_and_its_files_are_had(terminal: Terminal, up: Up, tmp_path: Path) -> None:
    ran = terminal("ingest", "run", "numbers", "--watch")
    assert ran.code == 1, "a batch of it failed"
    assert ran.lines[0].startswith("numbers: running, 0 of 0 batches published")
    assert any(line.startswith("numbers: completed, 2 of 3 batches published") for line in ran.lines)

    shown = terminal("ingest", "show", "numbers", "-o", "json")
    run = shown.json
    assert (shown.code, run["status"], run["batches"]) == (0, "completed", {"failed": 1, "published": 2})
    assert terminal("ingest", "show", run["id"], "--watch").code == 1
    assert terminal("ingest", "runs", "--source", "numbers", "-o", "name").lines == [run["id"]]
    [failed] = terminal("ingest", "batches", "numbers", "--status", "failed", "-o", "json").json
    assert (failed["n"], failed["error"]["code"]) == (1, "bad_input")
    assert "no such region" in failed["error"]["traceback"]
    assert "bad_input" in terminal("ingest", "batches", "numbers").out
    why = terminal("why", failed["job_id"])
    assert "Its run of 'numbers' completed." in " ".join(why.out.split())

    (up.data.parent / "mended").touch()
    assert terminal("ingest", "retry", "numbers", "1").out == "Batch 1 is fetched and goes on.\n"
    again = terminal("ingest", "retry", "numbers", "0")
    assert (again.code, "Only a failed batch" in again.err) == (4, True)
    assert terminal("ingest", "skip", "numbers", "99").code == 3

    def published() -> bool:
        return bool(terminal("ingest", "show", "numbers", "-o", "json").json["batches"] == {"published": 3})

    wait_for("the batch is published", published)
    assert "a multiple of seven" in terminal("ingest", "rejected", "numbers", "1").out

    files = terminal("ingest", "files", "numbers", "-o", "json").json
    *first, mended = [file["batch"] for file in files]
    assert (sorted(first), mended) == ([0, 2], 1), "in the order in which they were published"
    target = tmp_path / "one.parquet"
    assert terminal("ingest", "download", files[0]["id"], "--to", str(target)).code == 0
    assert pq.read_table(target).num_rows == files[0]["rows"]
    refused = terminal("ingest", "download", files[0]["id"], "--to", str(target))
    assert (refused.code, "--force" in refused.err) == (2, True)
    rejected = tmp_path / "rejected.parquet"
    assert terminal("ingest", "download", files[2]["id"], "--to", str(rejected), "--rejected").code == 0
    assert pq.read_table(rejected)["reason"].to_pylist() == ["a multiple of seven"]

    every = terminal(
        "ingest", "run", "numbers", "--from", "session", "--session", '{"after": 8}', "--wait", "-o", "json"
    )
    assert (every.code, every.json["records"]) == (0, 2)
    with duckdb.connect() as database:
        database.execute(terminal("ingest", "sql", "numbers").out)
        current = database.execute('SELECT id::int FROM "numbers" ORDER BY 1').fetchall()
        database.execute(terminal("ingest", "sql", "numbers", "--all").out)
        versions = database.execute('SELECT count(*) FROM "numbers"').fetchall()
    assert [id for (id,) in current] == [n for n in range(1, 11) if n % 7]
    assert versions == [(9 + 2,)]


def test_what_a_run_ends_with_is_its_exit_code(terminal: Terminal) -> None:
    assert terminal("ingest", "run", "few", "--wait", "-o", "name").code == 0
    limited = terminal(
        "ingest", "run", "few", "--from", "start", "--limit", "2", "--batch-size", "1", "-w", "-o", "json"
    )
    assert (limited.code, limited.json["records"], limited.json["next_batch"]) == (0, 2, 2)
    failed = terminal("ingest", "run", "broken", "--wait")
    assert failed.code == 1
    assert "says that its input is bad" in failed.out


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("run", "nowhere"), 3, "There is no source 'nowhere'."),
        (("run", "few", "--from", "session"), 2, "belong together"),
        (("run", "few", "--session", "1"), 2, "belong together"),
        (("run", "few", "--from", "session", "--session", "{"), 2, "must be JSON"),
        (("run", "few", "--limit", "0"), 2, "limit"),
        (("run", "few", "--batch-size", "1000000000"), 2, "batch_size"),
        (("show", "never"), 1, "never ran"),
        (("sql", "never"), 1, "Nothing of 'never' is published yet."),
        (("download", "x", "--to", "x.csv"), 2, ".parquet"),
        (("cancel", "never"), 1, "never ran"),
    ],
)
def test_what_cannot_be_is_said(terminal: Terminal, words: tuple[str, ...], code: int, said: str) -> None:
    answer = terminal("ingest", *words)
    assert answer.code == code, answer.err
    assert said in answer.err


def test_sources_are_listed_and_an_ended_run_is_not_cancelled(terminal: Terminal) -> None:
    assert terminal("ingest", "sources", "-o", "name").lines == ["broken", "few", "never", "numbers"]
    assert "Numbers" in terminal("ingest", "sources").out
    assert terminal("ingest", "run", "few", "-w").code == 0
    cancelled = terminal("ingest", "cancel", "few", "--reason", "too late")
    assert (cancelled.code, "already" in cancelled.err) == (4, True)


def test_a_source_is_tried_without_a_server(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numbers.py").write_text(NUMBERS)
    (tmp_path / "sevens.py").write_text(SEVENS)
    python = json.dumps(sys.executable)
    (tmp_path / "paddock.toml").write_text(
        f'[ingest.sources.numbers]\ncommand = [{python}, "-S", "numbers.py"]\nfolder = "."\nhooks = ["sevens"]\n'
        f"[ingest.sources.numbers.config]\ntotal = 20\n"
        f'[ingest.hooks.sevens]\ncommand = [{python}, "-S", "sevens.py"]\nfolder = "."\n'
    )
    monkeypatch.chdir(tmp_path)
    tried = terminal("ingest", "try", "numbers", "--limit", "7", data=False)
    assert tried.code == 0, tried.err
    assert "The ingester gave 7 records and says that there is more." in tried.out
    assert "The hook 'sevens' passed 6, rejected 1 and could not do 0." in tried.out
    assert "a multiple of seven" in tried.out
    (tmp_path / "sevens.py").write_text("open(__import__('os').environ['PADDOCK_OUT'] + '/features.jsonl', 'w')")
    broken = terminal("ingest", "try", "numbers", data=False)
    assert (broken.code, "unaccounted_records" in broken.err) == (1, True)
    assert terminal("ingest", "try", "numbers", "--hook", "gone", data=False).code == 1
    assert list(tmp_path.glob("paddock-data/*")) == [], "nothing is left"
