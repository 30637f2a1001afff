"""One real Trino for a whole test run, shared by its processes. Use the fixture `trino`."""

import fcntl
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paddock.engines.settings import TrinoSettings
from tests.trino.configuring import Ports
from tests.trino.fetching import trino_home
from tests.trino.keeper import START_SECONDS

# Held until the interpreter ends: Popen complains when it is collected before its process.
KEEPERS: "list[subprocess.Popen[bytes]]" = []


@dataclass(frozen=True)
class TrinoServer:
    folder: Path
    ports: Ports

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.ports.http}"

    @property
    def https_url(self) -> str:
        return f"https://127.0.0.1:{self.ports.https}"

    @property
    def ca_file(self) -> Path:
        return self.folder / "etc" / "ca.pem"

    @property
    def warehouse(self) -> Path:
        """What Trino calls `local:///`."""
        return self.folder / "warehouse"

    def settings(self, **changes: Any) -> TrinoSettings:
        given = {"url": self.url, "user": "lab", "requires_role": False, "catalog": "tpch", "schema": "tiny"}
        return TrinoSettings.model_validate(given | changes)


@pytest.fixture(scope="session")
def trino() -> Iterator[TrinoServer]:
    trino_home()
    # The same for all processes of one run.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"paddock-trino-{run}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        keeper = _keeper(folder)
        try:
            yield _ready(folder)
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if keeper is not None:
                # Where other processes of this run still use it, it ends after them.
                with suppress(subprocess.TimeoutExpired):
                    keeper.wait(0.5 if "PYTEST_XDIST_WORKER" in os.environ else 30)
                KEEPERS.append(keeper)


def _keeper(folder: Path) -> "subprocess.Popen[bytes] | None":
    with (folder / "start.lock").open("w") as start:
        fcntl.flock(start, fcntl.LOCK_EX)
        if (folder / "keeper").exists():
            return None
        with (folder / "keeper.log").open("wb") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.trino.keeper", str(folder)],
                cwd=Path(__file__).parents[2],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (folder / "keeper").write_text(str(keeper.pid))
        return keeper


def _ready(folder: Path) -> TrinoServer:
    end = time.monotonic() + START_SECONDS + 30
    pid = int((folder / "keeper").read_text())
    while not (folder / "ready.json").exists():
        if time.monotonic() > end or not _runs(pid):
            raise RuntimeError((folder / "keeper.log").read_text(errors="replace"))
        time.sleep(0.1)
    facts = json.loads((folder / "ready.json").read_text())
    return TrinoServer(folder, Ports(facts["http"], facts["https"], facts["s3"], facts["lake"]))


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
