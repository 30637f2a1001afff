"""`paddock ingest try`, in this process."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.errors import CommandFailed
from paddock.ingest.trying import try_here

DIGEST = f"registry.example/orders@sha256:{'a' * 64}"
ODD = """
import os
out = os.environ["PADDOCK_OUT"]
open(out + "/records.jsonl", "w").write('{"id": 1, "data": {"n": 1, "x": 1e999}}\\n{"id": 2, "data": {"n": "many"}}\\n')
open(out + "/session.json", "w").write('{"session": 1, "has_more": false}')
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd.py").write_text(ODD)


def configure(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    table = {"command": [sys.executable, "-S", "odd.py"], "folder": str(Path.cwd()), **settings}
    monkeypatch.setenv("PADDOCK_INGEST_SOURCES", json.dumps({"odd": table}))


def test_a_source_of_a_cluster_is_not_tried_here(monkeypatch: pytest.MonkeyPatch) -> None:
    configure(monkeypatch, runtime="kubernetes", image=DIGEST)
    with pytest.raises(CommandFailed, match="runs on Kubernetes"):
        try_here("odd", None, 10)


def test_numbers_that_not_all_readers_take_are_shown_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch)
    assert try_here("odd", None, 10) == 0
    assert '"data":{"n": 1, "x": 1e999}' in capsys.readouterr().out


def test_records_that_do_not_fit_the_columns_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configure(monkeypatch, columns={"n": "INT64"})
    assert try_here("odd", None, 10) == 0
    said = capsys.readouterr().out
    assert "The record '2' does not fit its columns: column_mismatch: the value of 'n' is no INT64" in said
    assert "1 records fit the declared columns." in said
