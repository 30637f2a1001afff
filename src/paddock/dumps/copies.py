"""Copies of databases: `<folder>/<job>/<copy>.db`, only their owner's to read.

A copy counts only with its marker, which is written and flushed after it. Without one, or where it says something else,
there is no copy: a new one is made, of a new point in time.
"""

import json
import os
import re
import shutil
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from paddock.jobs.model import JobId

JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# What else a copy may need beside its own bytes.
SPARE = 64 << 20


@dataclass(frozen=True, slots=True)
class Copy:
    path: Path
    point_in_time: datetime


class Copies:
    def __init__(self, folder: Path, job: JobId) -> None:
        self._all = folder
        self._own = folder / str(job)

    def place(self, copy: str, before: str | None) -> Path:
        """For a new one, instead of the one before. Others are not ours to remove: somebody may be at work."""
        if before is not None:
            self.drop(before)
        self._all.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._own.mkdir(mode=0o700, exist_ok=True)
        return self._file(copy)

    def drop(self, copy: str) -> None:
        for file in self._own.glob(f"{copy}.*"):
            file.unlink(missing_ok=True)

    def lacking(self, size: int, budget: int | None) -> str | None:
        """Why there is no room for a copy of so many bytes; None: there is."""
        above = next(folder for folder in (self._all, *self._all.parents) if folder.exists())
        free = shutil.disk_usage(above).free
        if free < size + SPARE:
            return f"the disk has {free:,} bytes free, and the copy needs {size + SPARE:,}"
        held = sum(held_by(folder) for folder in _folders(self._all) if folder != self._own)
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

    def _file(self, copy: str) -> Path:
        return self._own / f"{copy}.db"

    def _marker(self, copy: str) -> Path:
        return self._own / f"{copy}.done"


def jobs_with_copies(folder: Path) -> list[str]:
    return [found.name for found in _folders(folder) if JOB.fullmatch(found.name)]


def remove(folder: Path, job: str) -> None:
    shutil.rmtree(folder / job, ignore_errors=True)


def held_by(folder: Path) -> int:
    total = 0
    for file in folder.glob("*"):
        try:
            total += file.stat().st_size
        except OSError:
            continue  # gone meanwhile
    return total


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
