"""A copy of a DuckDB database, as it was at one moment.

While we hold the read lock that DuckDB's own readers hold, nobody can open the file to write, so neither it nor its
write-ahead log changes. The lock is one of the open file (OFD), not of the process: a process loses those of the other
kind when it closes any descriptor of the file, and this process may make two copies at once.

What was committed may stand only in the log. So both are copied, and DuckDB then writes the log's content into the copy:
what remains is one file, which opens the same way each time.
"""

import errno
import fcntl
import os
import struct
from datetime import UTC, datetime
from pathlib import Path

import duckdb

from paddock.dumps.duckdb import connecting
from paddock.dumps.source import Progress
from paddock.engines.children.quoting import quoted
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.failures import NO_ROOM, disk_full
from paddock.storage.threads import change_on_io

PIECE = 16 << 20
MAGIC = b"DUCK"
# A log, one that a checkpoint is about to replace, and one that a recovery was writing.
LOGS = (".wal", ".wal.checkpoint", ".wal.recovery")

# What DuckDB may hold while it writes a log into a copy.
SETTLING = 4 << 30

_FICLONE = 0x40049409
_LOCK = "hhqqi4x"
_NOT_HERE = {errno.EXDEV, errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY, errno.EPERM, errno.EBADF}


async def copy(source: Path, target: Path, progress: Progress) -> datetime:
    held = await change_on_io(_hold, source)
    try:
        at = datetime.now(UTC)
        await change_on_io(_check, held, source)
        await change_on_io(_clear, target)
        await _copy_files(held, source, target, progress)
    finally:
        await change_on_io(os.close, held)
    try:
        await change_on_io(_settle, target, connecting.name_of(source))
    except duckdb.Error as problem:
        # DuckDB says so in words only.
        if any(os.strerror(number) in str(problem) for number in NO_ROOM):
            raise disk_full("where the database is copied to") from problem
        raise connecting.explained(problem, source, target) from problem
    return at


async def _copy_files(held: int, source: Path, target: Path, progress: Progress) -> None:
    sizes = {suffix: size for suffix in ("", *LOGS) if (size := _size(Path(f"{source}{suffix}"))) is not None}
    total, done = sum(sizes.values()), 0
    await progress(0, total)
    for suffix, size in sizes.items():
        opened = held if suffix == "" else os.open(f"{source}{suffix}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            made = os.open(f"{target}{suffix}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                if not await change_on_io(_cloned, opened, made):
                    offset = 0
                    while offset < size:
                        offset += await change_on_io(_copied, opened, made, offset, min(PIECE, size - offset))
                        await progress(done + offset, total)
                await change_on_io(os.fsync, made)
            finally:
                os.close(made)
        finally:
            if opened != held:
                os.close(opened)
        done += size
        await progress(done, total)


def _hold(source: Path) -> int:
    try:
        opened = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise connecting.missing(source) from None
    except OSError as problem:
        raise PermanentRunnerError(
            f"{source.name} cannot be read: {problem.strerror}.", code="database_unreadable"
        ) from problem
    wanted = struct.pack(_LOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(opened, fcntl.F_OFD_SETLK, wanted)
    except OSError as problem:
        holder = _holder(opened, wanted)
        os.close(opened)
        if problem.errno in {errno.EAGAIN, errno.EACCES}:
            raise connecting.locked(source, holder) from None
        raise PermanentRunnerError(
            f"{source.name} cannot be locked: {problem.strerror}.",
            code="database_unreadable",
            hint="DuckDB itself needs locks on the file system that it is on.",
        ) from problem
    return opened


def _holder(opened: int, wanted: bytes) -> int | None:
    try:
        found = fcntl.fcntl(opened, fcntl.F_OFD_GETLK, wanted)
    except OSError:
        return None
    kind, _, _, _, pid = struct.unpack(_LOCK, found)
    return pid if kind != fcntl.F_UNLCK and pid > 0 else None


def _check(held: int, source: Path) -> None:
    """Before many bytes are copied in vain. With a log only DuckDB's magic word: replaying it is the copy's business."""
    try:
        word = os.pread(held, len(MAGIC), 8)
    except IsADirectoryError:
        word = b""
    if word != MAGIC:
        raise PermanentRunnerError(f"{source.name} is not a DuckDB database.", code="not_a_database")
    if any(_size(Path(f"{source}{log}")) is not None for log in LOGS):
        return
    try:
        connecting.attached(source, connecting.name_of(source)).close()
    except duckdb.Error as problem:
        raise connecting.explained(problem, source) from problem


def _clear(target: Path) -> None:
    """A log that an earlier try left would be taken for this copy's."""
    for suffix in ("", *LOGS):
        Path(f"{target}{suffix}").unlink(missing_ok=True)


def _cloned(opened: int, made: int) -> bool:
    try:
        fcntl.ioctl(made, _FICLONE, opened)
    except OSError:
        return False
    return True


def _copied(opened: int, made: int, offset: int, count: int) -> int:
    try:
        copied = os.copy_file_range(opened, made, count, offset, offset)
    except OSError as problem:
        if problem.errno not in _NOT_HERE:
            raise
        copied = os.pwrite(made, os.pread(opened, count, offset), offset)
    if copied == 0:
        raise PermanentRunnerError(
            "The database became shorter while it was copied, although it was locked.", code="database_unreadable"
        )
    return copied


def _settle(target: Path, name: str) -> None:
    """Writes what the logs hold into the copy, and proves that DuckDB opens it."""
    logs = [Path(f"{target}{log}") for log in LOGS]
    if any(log.exists() for log in logs):
        connection = connecting.attached(target, name, SETTLING, read_only=False)
        try:
            connection.execute(f"CHECKPOINT {quoted(name)}")
        finally:
            connection.close()
        # Opened again: what would not be found in the file now was not settled.
        for log in logs:
            log.unlink(missing_ok=True)
    connecting.attached(target, name).close()
    for path, flags in ((target, os.O_RDONLY), (target.parent, os.O_RDONLY | os.O_DIRECTORY)):
        opened = os.open(path, flags)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)


def _size(file: Path) -> int | None:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return None
