"""Copies of databases: `<folder>/<job>/<copy>.db`, only their owner's to read.

A copy counts only with its marker, which is written and flushed after it. Without one, or where it says something else,
there is no copy: a new one is made, of a new point in time.

Room is taken before the first byte is written: who looks meanwhile counts what is promised with what is there. A promise
is a locked file, so that it ends with its process however that ends.
"""

import errno
import json
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from fcntl import LOCK_EX, LOCK_NB, LOCK_SH, flock
from pathlib import Path

from paddock.jobs.errors import PermanentRunnerError
from paddock.jobs.model import JobId

JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What else a copy may need beside its own bytes.
SPARE = 64 << 20
PROMISE = ".promise"
# Copies of streams lie beside those of jobs, under names that no job has.
OF_STREAM = "sync-"
# Of a folder that is read-only, belongs to somebody else, or is none.
NOT_WRITABLE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST})


@dataclass(frozen=True, slots=True)
class Copy:
    path: Path
    point_in_time: datetime


class NoRoom(Exception):
    """Why there is none, to be said to people."""


@dataclass(frozen=True, slots=True)
class Room:
    """Where a copy goes, and the open file that keeps room for it."""

    file: Path
    promise: Path
    held: int

    def free(self) -> None:
        self.promise.unlink(missing_ok=True)
        os.close(self.held)


class Copies:
    def __init__(self, folder: Path, job: JobId) -> None:
        self._all = folder
        self._own = folder / str(job)

    def reserve(self, copy: str, size: int, budget: int | None) -> Room:
        """For a new copy of so many bytes. One at a time: two who look together would both find the same room."""
        self.check_writable()
        # Before anything is made, too: on a full disk nothing can be.
        self._refuse(size, budget)
        try:
            return self._reserve(copy, size, budget)
        except OSError as problem:
            if problem.errno in NOT_WRITABLE:
                raise _not_writable(problem.errno) from problem
            raise

    def _reserve(self, copy: str, size: int, budget: int | None) -> Room:
        self._all.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(self._all / "lock"):
            self._refuse(size, budget)
            self._own.mkdir(mode=0o700, exist_ok=True)
            promise = self._own / f"{copy}{PROMISE}"
            held = os.open(promise, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            flock(held, LOCK_EX)
            os.pwrite(held, b"%d" % size, 0)
        return Room(self._file(copy), promise, held)

    def check_writable(self) -> None:
        """First of all: a file system that cannot be written may say that it has no room."""
        nearest = self._nearest()
        if not nearest.is_dir():
            raise _not_writable(errno.ENOTDIR)
        if not os.access(nearest, os.W_OK | os.X_OK):
            raise _not_writable(errno.EACCES)

    def _nearest(self) -> Path:
        """The folder itself, or what it would be made in."""
        return next(folder for folder in (self._all, *self._all.parents) if folder.exists())

    def drop(self, copy: str) -> None:
        """One that does not count. Others are not ours to remove: somebody may be at work."""
        for file in self._own.glob(f"{copy}.*"):
            file.unlink(missing_ok=True)

    def lacking(self, size: int, budget: int | None) -> str | None:
        """Why there is no room for a copy of so many bytes; None: there is."""
        others = [(_written(folder), _promised(folder)) for folder in _folders(self._all) if folder != self._own]
        free = shutil.disk_usage(self._nearest()).free - sum(max(0, promised - written) for written, promised in others)
        if free < size + SPARE:
            return f"the disk has {max(0, free):,} bytes free, and the copy needs {size + SPARE:,}"
        held = sum(max(each) for each in others)
        if budget is not None and held + size > budget:
            return f"copies hold {held:,} bytes, this one needs {size:,}, and work_bytes allows {budget:,}"
        return None

    def mark(self, copy: str, point_in_time: datetime) -> Copy:
        path = self._file(copy)
        marker = {"copy": copy, "bytes": path.stat().st_size, "point_in_time": point_in_time.isoformat()}
        written = self._own / f"{copy}.writing"
        with written.open("w") as file:
            json.dump(marker, file)
            file.flush()
            os.fsync(file.fileno())
        written.rename(self._marker(copy))
        flush_folder(self._own)
        flush_folder(self._all)
        return Copy(path, point_in_time)

    def find(self, copy: str) -> Copy | None:
        path = self._file(copy)
        try:
            marker = json.loads(self._marker(copy).read_text())
            if marker["copy"] != copy or marker["bytes"] != path.stat().st_size:
                return None
            return Copy(path, datetime.fromisoformat(marker["point_in_time"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        shutil.rmtree(self._own, ignore_errors=True)

    def _refuse(self, size: int, budget: int | None) -> None:
        lacking = self.lacking(size, budget)
        if lacking is not None:
            raise NoRoom(lacking)

    def _file(self, copy: str) -> Path:
        return self._own / f"{copy}.db"

    def _marker(self, copy: str) -> Path:
        return self._own / f"{copy}.done"


def name_of_stream() -> str:
    """For the copy of one stream, in place of a job's id."""
    return f"{OF_STREAM}{secrets.token_hex(8)}"


def _not_writable(reason: int) -> PermanentRunnerError:
    """Nothing changes by waiting, so it is said at once."""
    return PermanentRunnerError(
        f"The database cannot be copied: the folder for its copies cannot be written ({os.strerror(reason)}).",
        code="work_dir_not_writable",
        hint="Copies are made beside the database unless work_dir says where: set it in [dumps.databases.NAME] to a folder "
        "that workers may write.",
    )


def jobs_with_copies(folder: Path) -> list[str]:
    return [found.name for found in _folders(folder) if JOB.fullmatch(found.name)]


def remove(folder: Path, job: str) -> None:
    shutil.rmtree(folder / job, ignore_errors=True)


def _written(folder: Path) -> int:
    total = 0
    for file in folder.glob("*"):
        try:
            total += file.stat().st_size
        except OSError:
            continue  # gone meanwhile
    return total


def _promised(folder: Path) -> int:
    """What those promise who are still there."""
    total = 0
    for promise in folder.glob(f"*{PROMISE}"):
        try:
            with promise.open() as file:
                try:
                    flock(file, LOCK_SH | LOCK_NB)
                except BlockingIOError:
                    total += int(file.read())
        except (OSError, ValueError):
            continue  # gone meanwhile
    return total


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("a") as file:
        flock(file, LOCK_EX)
        yield


def flush_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _folders(folder: Path) -> list[Path]:
    try:
        return [found for found in folder.iterdir() if found.is_dir() and not found.is_symlink()]
    except OSError:
        return []
