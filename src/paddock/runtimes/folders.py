"""The folder of one local instance, which tells all there is to know about it to whoever comes next.

`meant.json`   the start that is meant now; a process of another one ends by itself
`lock`         held by the process as long as it lives
`spawned.json` the processes that were started for that start, and their keeper
`run.json`     written by the process once it listens: its id and port
`ended.json`   how it ended, if whoever started it saw that
`stopping`     it was asked to end; how long ago its time of change tells
`log`          what the process wrote
`files/`, `db/`, `current` belong to the process.
"""

import contextlib
import fcntl
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

from paddock.runtimes.keeper import ProcessId

GONE = ".gone-"
STARTS = ".starts"
# How many instances that were taken away are remembered: a start that was overtaken is a moment late, and not a thousand deletes.
MOST_REMEMBERED = 1_000
LOG_TAIL = 64 * 1024


class InstanceFolder:
    def __init__(self, root: Path, instance: UUID) -> None:
        self.root = root
        self.path = root / str(instance)

    def make(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.close(os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def read(self, name: str) -> dict[str, Any]:
        """Empty: it is not there, or somebody killed its writer halfway."""
        try:
            found = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Whole or not at all."""
        draft = self.path / f"{name}.{uuid.uuid4().hex}.new"
        draft.write_text(json.dumps(content))
        draft.replace(self.path / name)

    def forget(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)

    def processes(self, generation: str) -> list[ProcessId]:
        """All that were ever started for this generation, as far as it is known, alive or not."""
        spawned, run = self.read("spawned.json"), self.read("run.json")
        found = []
        if spawned.get("generation") == generation:
            found += [ProcessId(int(pid), str(started)) for pid, started in spawned["processes"]]
        if run.get("generation") == generation:
            found.append(ProcessId(int(run["pid"]), str(run["pid_started"])))
        return found

    def all_processes(self) -> list[ProcessId]:
        """Those of the last generation that was started, whichever is meant now: the next one is started after their end."""
        generations = {self.read(name).get("generation") for name in ("spawned.json", "run.json")}
        return [process for one in generations if one is not None for process in self.processes(one)]

    @contextmanager
    def locked(self) -> Iterator[bool]:
        """Whether nobody else holds the lock. A process that begins meanwhile would find it held and end, so this is asked
        only where none is expected."""
        try:
            lock = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            yield True
            return
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            yield True
        finally:
            os.close(lock)

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Whether nobody else starts or takes away this instance at the moment. Kept outside of the folder, which comes and goes."""
        file = self.root / STARTS / str(self.path.name)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            # One that was forgotten between the two is nobody's lock any more.
            yield _is_at(lock, file)
        finally:
            os.close(lock)

    def taken_away(self) -> int:
        """The highest number of a start that was taken away; 0: none was, as far as it is remembered."""
        try:
            return int((self.root / STARTS / self.path.name).read_text() or 0)
        except (OSError, ValueError):
            return 0

    def remember_taken_away(self, number: int) -> None:
        """Only by whoever is `alone`. In place, because the file is the lock; half a number is no number."""
        if number > self.taken_away():
            (self.root / STARTS / self.path.name).write_text(str(number))

    def tail_of_log(self) -> str:
        try:
            with (self.path / "log").open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - LOG_TAIL))
                return file.read(LOG_TAIL).decode("utf-8", "replace")
        except OSError:
            return ""

    def set_aside(self) -> Path:
        """From here on it is gone for everybody; the content is removed afterwards."""
        gone = self.root / f"{GONE}{uuid.uuid4().hex}"
        self.path.rename(gone)
        return gone


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def forget_long_gone(root: Path) -> None:
    """The oldest of what is remembered of instances that are not there any more, once there are twice as many as are kept."""
    known = list((root / STARTS).glob("*"))
    if len(known) < 2 * MOST_REMEMBERED:
        return
    files = []
    for file in known:
        with contextlib.suppress(FileNotFoundError):
            if not (root / file.name).exists():
                files.append((file.stat().st_mtime, file))
    for _, file in sorted(files)[: -MOST_REMEMBERED or None]:
        file.unlink(missing_ok=True)


def remove_set_aside(root: Path) -> None:
    """What a killed process was about to remove."""
    for left in root.glob(f"{GONE}*"):
        shutil.rmtree(left, ignore_errors=True)
