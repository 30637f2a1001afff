"""A running `paddock up` for all tests of the command line, and the command line in this process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.cli import app
from paddock.client import Client
from tests.processes.running import Up, clean_environment, data_folder, running_up, wait_for


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.out, f"exit code {self.code}: {self.err}"
        return json.loads(self.out)

    @property
    def yaml(self) -> Any:
        return yaml.safe_load(self.out)

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()


class Terminal:
    """`terminal("jobs", "list")` is `paddock jobs list` of somebody whose `paddock up` runs in this data folder."""

    def __init__(self, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._data = data
        self._capsys = capsys

    def __call__(self, *words: str, data: bool = True) -> Said:
        self._capsys.readouterr()
        code = app.run([*words, "--data", str(self._data)] if data else words)
        out, err = self._capsys.readouterr()
        assert "Traceback" not in err
        return Said(code, out, err)


def interrupted(up: Up, folder: Path, once: str, *words: str) -> str:
    """What a command says that gets Ctrl-C once it has said something, and then exits as a shell expects."""
    command = [sys.executable, "-m", "paddock.cli", *words, "--data", str(up.data)]
    with (folder / "said").open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, env=clean_environment(), cwd=folder)
    try:
        wait_for(f"it says '{once}'", lambda: once in (folder / "said").read_text())
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    finally:
        running.kill()
        running.wait()
    return (folder / "said").read_text()


@pytest.fixture(scope="session")
def up() -> Iterator[Up]:
    # Nobody kills the worker here: on a busy machine it must not be taken for dead.
    environment = clean_environment(PADDOCK_WEBHOOK_ALLOW_PRIVATE="true") | {"PADDOCK_LEASE_SECONDS": "60"}
    with data_folder() as data, running_up(data, "--port", "0", environment=environment) as running:
        running.child("worker")
        yield running


@pytest.fixture
def terminal(up: Up, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Terminal:
    _forget_environment(monkeypatch)
    return Terminal(up.data, capsys)


@pytest.fixture
def client(up: Up) -> Iterator[Client]:
    with up.client() as opened:
        yield opened


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder where nothing runs."""
    _forget_environment(monkeypatch)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def _forget_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PADDOCK_"):
            monkeypatch.delenv(name)
