"""One owner of a data folder, and one server at a time in it."""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import structlog

from paddock.db.embedded.errors import DataFolderInUse
from paddock.db.embedded.place import open_file

log = structlog.get_logger()
_POLL = timedelta(milliseconds=10)
_LOG_EVERY = timedelta(seconds=10)


@contextlib.contextmanager
def ownership(data_dir: Path) -> Iterator[None]:
    lock = open_file(data_dir / "owner.lock", os.O_RDWR, 0o600)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(lock, 20, 0).decode() or "unknown"
            raise DataFolderInUse(
                f"The data folder {data_dir} is in use by another Paddock (process {holder}): stop that one first, "
                f"or choose another folder (--data DIR)."
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(lock)


async def previous_server_gone(data_dir: Path) -> int:
    """The lock that postgres and all its children will hold, once the last of the previous ones has let it go."""
    lock = open_file(data_dir / "server.lock", os.O_RDWR, 0o600)

    def locked() -> bool:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    try:
        await until(locked, "the previous postgres has ended", data_dir)
    except BaseException:
        os.close(lock)
        raise
    return lock


async def until(condition: Callable[[], bool], what: str, data_dir: Path) -> None:
    started = logged = time.monotonic()
    while not condition():
        now = time.monotonic()
        if now - logged >= _LOG_EVERY.total_seconds():
            logged = now
            log.info("embedded_postgres_waits", until=what, data_dir=str(data_dir), seconds=round(now - started))
        await asyncio.sleep(_POLL.total_seconds())
