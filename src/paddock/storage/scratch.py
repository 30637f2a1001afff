"""Files on the local disk that live until they are uploaded.

Each process has a folder of its own and holds it by `flock`; the kernel lets go of the lock however the process ends.
Who starts next removes the folders that nobody holds. All files of a process share one budget, so that many exports
fill neither the disk nor each other's share unnoticed.
"""

import fcntl
import hashlib
import os
import shutil
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddock.storage.failures import NO_ROOM, disk_full

PRESSED = 0.8
BUFFER = 1 << 20


class Scratch:
    def __init__(self, folder: Path, budget: int) -> None:
        self.budget = budget
        self.used = 0
        self._mutex = threading.Lock()
        folder.mkdir(parents=True, exist_ok=True)
        # Nobody cleans up between another's mkdir and flock.
        with _locked(folder / ".lock"):
            _remove_leftovers(folder)
            self.folder = folder / uuid.uuid4().hex
            self.folder.mkdir(mode=0o700)
            self._lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    @property
    def pressed(self) -> bool:
        """Time to close what is open and upload it."""
        return self.used > self.budget * PRESSED

    def new(self, suffix: str = "") -> "ScratchFile":
        return ScratchFile(self, self.folder / f"{uuid.uuid4().hex}{suffix}")

    def close(self) -> None:
        if self._lock >= 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)
            self._lock = -1

    def take(self, size: int) -> None:
        with self._mutex:
            if self.used + size > self.budget:
                raise disk_full(f"in the scratch space: its budget of {self.budget:,} bytes is used up")
            self.used += size

    def give(self, size: int) -> None:
        with self._mutex:
            self.used -= size


class ScratchFile:
    """What Arrow's writers want of a file: `pa.PythonFile(file, "w")`."""

    def __init__(self, scratch: Scratch, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self.rows = 0
        self._scratch = scratch
        self._digest = hashlib.sha256()
        self._removed = False
        with room():
            self._file = path.open("xb", buffering=BUFFER)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    @property
    def closed(self) -> bool:
        return self._file.closed

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        if self._removed:
            # A writer that is dropped still wants to write its end: it would take room that nobody gives back.
            raise ValueError("The scratch file was removed.")
        # Taken before it is written and given back only by `remove`: whatever is on the disk is accounted for.
        self._scratch.take(size)
        self.bytes += size
        with room():
            self._file.write(data)
        self._digest.update(data)
        return size

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        with room():
            self._file.flush()

    def close(self) -> None:
        with room():
            self._file.close()

    def remove(self) -> None:
        if self._removed:
            return
        self._removed = True
        try:
            self._file.close()
        except OSError:
            pass  # what could not be written is not wanted any more
        finally:
            self.path.unlink(missing_ok=True)
            self._scratch.give(self.bytes)


@contextmanager
def room() -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno not in NO_ROOM:
            raise
        raise disk_full("on the disk of the scratch space") from None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    held = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield
    finally:
        os.close(held)


def _remove_leftovers(folder: Path) -> None:
    for child in folder.iterdir():
        if child.is_symlink() or not child.is_dir() or not _is_ours(child.name):
            continue
        try:
            held = os.open(child, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # gone meanwhile, or another account's
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(child, ignore_errors=True)
        finally:
            os.close(held)


def _is_ours(name: str) -> bool:
    return len(name) == 32 and set(name) <= set("0123456789abcdef")
