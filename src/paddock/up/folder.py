"""The data folder: private, owned by one `up` at a time, and where the others find its address."""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paddock.db.data_folder import make_data_folder
from paddock.up.errors import UpError


def make_folder(data: Path) -> None:
    try:
        make_data_folder(data)
    except OSError as problem:
        raise UpError(
            f"{problem.filename} cannot be made: {problem.strerror}. Choose a data folder with --data DIR."
        ) from None


@contextmanager
def ownership(data: Path) -> Iterator[None]:
    """At most one `up` for each folder; the lock goes with the process, however it ends."""
    try:
        lock = os.open(data / "up.lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        raise UpError(f"{data} cannot be used: {problem.strerror}. Choose a data folder with --data DIR.") from None
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UpError(_in_use(data)) from None
        yield
    finally:
        os.close(lock)


def _in_use(data: Path) -> str:
    where = ""
    with contextlib.suppress(OSError, ValueError, KeyError):
        told = json.loads((data / "server.json").read_text("utf-8"))
        where = f" at {told['url']} (process {told['pid']})"
    return (
        f"A Paddock is running on {data} already{where}: use that one, stop it, or choose another folder (--data DIR)."
    )


@contextmanager
def address(data: Path, url: str) -> Iterator[None]:
    """`server.json` exists exactly while it answers; readers check the process too, in case this one is killed."""
    file = data / "server.json"
    told: dict[str, Any] = {"url": url, "pid": os.getpid()}
    temporary = data / "server.json.new"
    temporary.write_text(json.dumps(told) + "\n", "utf-8")
    temporary.replace(file)
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def read(file: Path) -> str | None:
    try:
        return file.read_text("utf-8").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as problem:
        raise UpError(f"{file} cannot be read: {problem}.") from None


def write_private(file: Path, content: str) -> None:
    """Mode 0600 from its first moment, and whole or not at all."""
    temporary = file.with_name(f"{file.name}.new")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write(content)
    temporary.replace(file)
