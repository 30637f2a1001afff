"""One real Kubernetes control plane for a whole test run, shared by its processes. Use the fixture `cluster`."""

import fcntl
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cluster.keeper import SHORT_CLOCKS, START_SECONDS
from tests.cluster.programs import control_plane, etcd

KUBECTL_SECONDS = 60
# Held until the interpreter ends: Popen complains when it is collected before its process.
KEEPERS: "list[subprocess.Popen[bytes]]" = []


class KubectlFailed(Exception):
    """What kubectl said when it failed."""


@dataclass(frozen=True)
class Cluster:
    """The server and its administrator. `processes` are the process ids by the names of their programs."""

    folder: Path
    url: str
    token: str
    processes: dict[str, int]

    @property
    def ca_file(self) -> Path:
        return self.folder / "keys" / "ca.crt"

    @property
    def server_certificate(self) -> tuple[Path, Path]:
        """Certificate and key of the server, for something that stands in front of it."""
        return self.folder / "keys" / "server.crt", self.folder / "keys" / "server.key"

    @property
    def admin_certificate(self) -> tuple[Path, Path]:
        """Certificate and key that are as good as the administrator's token."""
        return self.folder / "keys" / "admin.crt", self.folder / "keys" / "admin.key"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    def ssl_context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca_file))

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """What kubectl says; `text` is its standard input. It blocks: an async test uses `asyncio.to_thread`."""
        ran = subprocess.run(
            [str(control_plane() / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=KUBECTL_SECONDS,
            # Not the person's own configuration and cache.
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            **({"stdin": subprocess.DEVNULL} if text is None else {"input": text}),
        )
        if ran.returncode != 0:
            raise KubectlFailed(f"{ran.stdout}\n{ran.stderr}".strip())
        return str(ran.stdout)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with shared_cluster() as found:
        yield found


@pytest.fixture(scope="session")
def losing_cluster() -> Iterator[Cluster]:
    """A second one, in which a node that does not beat for two seconds is lost, and its pods two seconds later."""
    with shared_cluster(SHORT_CLOCKS) as found:
        yield found


@contextmanager
def shared_cluster(kind: str = "") -> Iterator[Cluster]:
    control_plane()
    etcd()
    # The same for all processes of one run.
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"{os.getpid()}"
    folder = Path(tempfile.gettempdir()) / f"paddock-cluster-{kind}{run}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users.lock").open("w") as users:
        fcntl.flock(users, fcntl.LOCK_SH)
        keeper = _keeper(folder, kind)
        try:
            yield _ready(folder)
        finally:
            fcntl.flock(users, fcntl.LOCK_UN)
            if keeper is not None:
                # Where other processes of this run still use it, it ends after them.
                with suppress(subprocess.TimeoutExpired):
                    keeper.wait(0.5 if "PYTEST_XDIST_WORKER" in os.environ else 30)
                KEEPERS.append(keeper)


def _keeper(folder: Path, kind: str) -> "subprocess.Popen[bytes] | None":
    with (folder / "start.lock").open("w") as start:
        fcntl.flock(start, fcntl.LOCK_EX)
        if (folder / "keeper").exists():
            return None
        with (folder / "keeper.log").open("wb") as log:
            keeper = subprocess.Popen(
                [sys.executable, "-m", "tests.cluster.keeper", str(folder), kind],
                cwd=Path(__file__).parents[2],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (folder / "keeper").write_text(str(keeper.pid))
        return keeper


def _ready(folder: Path) -> Cluster:
    end = time.monotonic() + 2 * START_SECONDS + 30
    pid = int((folder / "keeper").read_text())
    while not (folder / "ready.json").exists():
        if time.monotonic() > end or not _runs(pid):
            raise RuntimeError((folder / "keeper.log").read_text(errors="replace"))
        time.sleep(0.05)
    facts = json.loads((folder / "ready.json").read_text())
    return Cluster(folder, facts["url"], facts["token"], facts["processes"])


def _runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
