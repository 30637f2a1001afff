"""Real processes for tests: started, waited for on conditions with deadlines, and always gone at the end."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import psutil

from paddock.client import Client, PaddockError

T = TypeVar("T")

# A dead worker is noticed within seconds.
QUICK = {"PADDOCK_BEAT_SECONDS": "1", "PADDOCK_LEASE_SECONDS": "4", "PADDOCK_LOG_FORMAT": "json"}
DEADLINE = 180.0


def wait_for(what: str, look: Callable[[], T | None], seconds: float = DEADLINE) -> T:
    """What `look` finds, once it finds something."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"Waited {seconds:.0f} s in vain until {what}."
        time.sleep(0.02)


def clean_environment(**settings: str) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    return {**inherited, **QUICK, **settings}


@contextlib.contextmanager
def data_folder() -> Iterator[Path]:
    """Not pytest's tmp_path: PostgreSQL runs under another account and must be able to reach its folder."""
    folder = Path(tempfile.mkdtemp(prefix="paddock-test-"))
    folder.chmod(0o755)
    try:
        yield folder / "data"
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Process:
    """`paddock ...` with its output in a file that a failing test shows."""

    def __init__(self, *arguments: str, log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("ab") as output:
            self.popen = subprocess.Popen(
                [sys.executable, "-P", "-m", "paddock.cli", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=dict(environment or clean_environment()),
                cwd=log.parent,
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def said(self) -> str:
        return self.log.read_text("utf-8", "replace")

    def until_said(self, text: str, seconds: float = DEADLINE) -> str:
        def look() -> str | None:
            if text in self.said():
                return self.said()
            assert self.popen.poll() is None, f"It ended ({self.popen.returncode}) and said:\n{self.said()}"
            return None

        return wait_for(f"it says {text!r}", look, seconds)

    def children(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            return psutil.Process(self.pid).children(recursive=True)
        return []

    def child(self, role: str) -> psutil.Process:
        """The process of `paddock up` that plays this role."""

        def look() -> psutil.Process | None:
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                    if child.cmdline()[1:5] == ["-P", "-m", "paddock.child", role]:
                        return child
            return None

        return wait_for(f"{role} runs", look)

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self, seconds: float = DEADLINE) -> int:
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"Still running after {seconds} s. It said:\n{self.said()}") from None

    def end(self) -> None:
        """However the test went."""
        family = self.children()
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(20)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


class Up(Process):
    def __init__(self, data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        self.data = data
        super().__init__(
            "up", "--data", str(data), *arguments, log=data.parent / f"up-{time.time_ns()}.log", environment=environment
        )

    def until_ready(self) -> "Up":
        def look() -> bool:
            assert self.popen.poll() is None, f"`paddock up` ended ({self.popen.returncode}):\n{self.said()}"
            with contextlib.suppress(OSError, ValueError):  # not there, or left by one that was killed
                return bool(self.address["pid"] == self.pid)
            return False

        wait_for("`paddock up` answers", look)
        return self

    @property
    def address(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads((self.data / "server.json").read_text())
        return told

    @property
    def token(self) -> str:
        return (self.data / "admin.token").read_text().strip()

    def client(self) -> Client:
        return Client(self.address["url"], self.token)


@contextlib.contextmanager
def running_up(data: Path, *arguments: str, environment: Mapping[str, str] | None = None) -> Iterator[Up]:
    up = Up(data, *arguments, environment=environment)
    try:
        yield up.until_ready()
    finally:
        up.end()


def until_status(client: Client, id: str, *statuses: str, seconds: float = DEADLINE) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        with contextlib.suppress(PaddockError):
            job = client.get(id)
            return job if job["status"] in statuses else None
        return None

    return wait_for(f"job {id} is {' or '.join(statuses)}", look, seconds)


def gone(processes: Iterable[psutil.Process]) -> bool:
    return not any(map(alive, processes))


def alive(process: psutil.Process) -> bool:
    """False too for one that nobody has buried yet, and for one that goes while we look."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
