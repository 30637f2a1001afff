"""A copy of a database in use, as it was in one moment.

A read transaction is opened first and held: the copy is of what it saw, however much is written meanwhile. Without it,
each commit of another process would begin the copy anew. With a write-ahead log writers do not notice; without one they
cannot commit until the copy is made, so that must be allowed.
"""

import os
import stat
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import apsw

from paddock.jobs.errors import PermanentRunnerError

PAGES = 1_000
BUSY_MILLISECONDS = 5_000


@dataclass(slots=True)
class Copying:
    """One at a time, in any thread. `close` it whatever happens: without `finish` nothing of the target remains."""

    source: apsw.Connection
    target: apsw.Connection
    backup: apsw.Backup
    path: Path
    point_in_time: datetime
    page_size: int
    finished: bool = False

    @classmethod
    def begin(cls, path: Path, target: Path, *, may_block: bool) -> "Copying":
        if not stat.S_ISREG(path.stat().st_mode):
            raise PermanentRunnerError(
                f"{path.name} is not a file.", code="source_unreadable", hint="Check `path` in the configuration."
            )
        source = apsw.Connection(
            f"file:{quote(str(path.absolute()))}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            source.set_busy_timeout(BUSY_MILLISECONDS)
            if source.pragma("journal_mode") != "wal" and not may_block:
                raise PermanentRunnerError(
                    f"The database {path.name} has no write-ahead log: its writers would wait while it is copied.",
                    code="needs_wal",
                    hint="Run PRAGMA journal_mode=WAL on it once, or set allow_blocking_copy = true.",
                )
            # Before, not after: all that was committed before the time that is stated is in the copy.
            now = datetime.now(UTC)
            source.execute("BEGIN")
            page_size = source.execute("SELECT count(*) FROM sqlite_schema").get and source.pragma("page_size")
            return cls._into(source, target, now, page_size or source.pragma("page_size"))
        except BaseException:
            source.close(True)
            raise

    @classmethod
    def _into(cls, source: apsw.Connection, path: Path, now: datetime, page_size: int) -> "Copying":
        _remove(path)
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        target = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # It is flushed once, at the end; who dies before has made no copy.
            target.pragma("synchronous", "off")
            target.pragma("journal_mode", "off")
            return cls(source, target, target.backup("main", source, "main"), path, now, page_size)
        except BaseException:
            target.close(True)
            _remove(path)
            raise

    def step(self) -> bool:
        self.backup.step(PAGES)
        return self.backup.done

    @property
    def total(self) -> int:
        return self.backup.page_count * self.page_size

    @property
    def copied(self) -> int:
        return (self.backup.page_count - self.backup.remaining) * self.page_size

    def finish(self) -> None:
        self.backup.close()
        self.target.close()
        for path in (self.path, self.path.parent):
            handle = os.open(path, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        self.finished = True

    def close(self) -> None:
        self.backup.close(True)
        self.target.close(True)
        self.source.close(True)
        if not self.finished:
            _remove(self.path)


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
