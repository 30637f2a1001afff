"""A copy of a database in use, as it was in one moment.

With a write-ahead log a read transaction is opened first and held: the copy is of what it saw, however much is written
meanwhile, and writers do not notice.

Without one nobody can commit while somebody reads. So nothing is held between steps, which are small: writers get in, and
SQLite begins the copy anew when they changed something. After some such times the rest is copied under one read
transaction. It keeps writers waiting, so it ends after the time that is allowed for that, done or not.
"""

import os
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

import apsw

from paddock.jobs.errors import PermanentRunnerError

PAGES = 1_000
# Where writers wait for the end of a step.
FEW_PAGES = 250
# How often writers may begin a copy anew before they have to wait.
MOST_RESTARTS = 3
BUSY_MILLISECONDS = 5_000


@dataclass(slots=True)
class Copying:
    """One at a time, in any thread. `close` it whatever happens: without `finish` nothing of the target remains."""

    source: apsw.Connection
    target: apsw.Connection
    backup: apsw.Backup
    path: Path
    name: str
    page_size: int
    clock: Callable[[], float]
    # How long writers may wait; None: as long as it takes, or they do not.
    may_block: float | None
    point_in_time: datetime
    # Since when one state is held, by the clock; None: writers get in between steps.
    held_since: float | None = None
    restarts: int = 0
    furthest: int = 0
    finished: bool = False

    @classmethod
    def begin(
        cls, path: Path, target: Path, *, may_block: float | None, clock: Callable[[], float] = time.monotonic
    ) -> "Copying":
        if not stat.S_ISREG(path.stat().st_mode):
            raise PermanentRunnerError(
                f"{path.name} is not a file.", code="source_unreadable", hint="Check `path` in the configuration."
            )
        source = apsw.Connection(
            f"file:{quote(str(path.absolute()))}?mode=ro", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            source.set_busy_timeout(BUSY_MILLISECONDS)
            if source.pragma("journal_mode") == "wal":
                may_block = None
            # Before, not after: all that was committed before the time that is stated is in the copy.
            now = datetime.now(UTC)
            if may_block is None:
                _hold(source)
            page_size = source.pragma("page_size")
            held = clock() if may_block is None else None
            copy, backup = _into(target, source)
            return cls(source, copy, backup, target, path.name, page_size, clock, may_block, now, held)
        except BaseException:
            source.close(True)
            raise

    def step(self) -> bool:
        if self.held_since is not None:
            self._check_time(self.held_since)
            self.backup.step(PAGES)
        elif self.restarts > MOST_RESTARTS:
            # What writers changed until now begins the copy anew once more; from here on they wait.
            self.point_in_time = datetime.now(UTC)
            _hold(self.source)
            self.held_since = self.clock()
        else:
            self._step_between_writers()
        self.furthest = max(self.furthest, self._pages)
        return self.backup.done

    def _step_between_writers(self) -> None:
        before, now = self._pages, datetime.now(UTC)
        self.backup.step(FEW_PAGES)
        if self._pages <= before:
            self.restarts += 1
        if self._pages <= max(before, FEW_PAGES):
            self.point_in_time = now

    def _check_time(self, since: float) -> None:
        if self.may_block is not None and self.clock() - since > self.may_block:
            raise PermanentRunnerError(
                f"The database {self.name} has no write-ahead log, and is written to so often that it cannot be copied"
                f" in between; its writers were kept waiting for {self.may_block:g} seconds, which was not enough.",
                code="needs_wal",
                hint="Run PRAGMA journal_mode=WAL on it once, or let writers wait: allow_blocking_copy = true, or a larger"
                " blocking_copy_seconds.",
            )

    @property
    def _pages(self) -> int:
        return self.backup.page_count - self.backup.remaining

    @property
    def total(self) -> int:
        return self.backup.page_count * self.page_size

    @property
    def copied(self) -> int:
        """As far as it ever was, also when it begins anew."""
        return min(self.furthest, self.backup.page_count) * self.page_size

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


def _hold(source: apsw.Connection) -> None:
    """A transaction has its state from the first read on."""
    source.execute("BEGIN")
    source.execute("SELECT count(*) FROM sqlite_schema").fetchall()


def _into(path: Path, source: apsw.Connection) -> tuple[apsw.Connection, apsw.Backup]:
    _remove(path)
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    target = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        # It is flushed once, at the end; who dies before has made no copy.
        target.pragma("synchronous", "off")
        target.pragma("journal_mode", "off")
        return target, target.backup("main", source, "main")
    except BaseException:
        target.close(True)
        _remove(path)
        raise


def _remove(path: Path) -> None:
    for name in (path.name, f"{path.name}-journal", f"{path.name}-wal", f"{path.name}-shm"):
        path.with_name(name).unlink(missing_ok=True)
