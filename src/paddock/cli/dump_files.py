"""The file of a dump from the server to this disk: under a name of its own first, then by one rename to where it belongs.

What a broken download left is gone on with, by whichever process: the name says of which dump and which bytes it is a
part, one process at a time writes to it, and at the end its sum is compared with the server's.
"""

import contextlib
import fcntl
import hashlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO

from paddock.cli.connection import Refusal, Server
from paddock.cli.errors import CommandFailed, wrong_usage
from paddock.cli.output import Item

# In a row, without a byte in between.
TRIES = 5
FIRST_PAUSE = 0.5
DUMP = re.compile(r"export_[0-9]{8}-[0-9]{6}_[0-9a-z]{6}")

# Bytes that are here, and all there are.
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the file is to go: a name, a folder that it gets its own name in, or standard output."""

    path: Path
    to_stdout: bool = False
    force: bool = False

    def named(self, file_name: str) -> Path:
        return self.path / file_name if self.path.is_dir() else self.path


@dataclass(frozen=True, slots=True)
class Sent:
    """A file as the server has it. `part_size` 0: how its sum was made is not known."""

    path: str
    name: str
    size: int
    etag: str
    part_size: int

    @property
    def digest(self) -> str:
        return self.etag.strip('"')


def target(to: str, *, force: bool = False) -> Target:
    """Before anything is asked of the server: a place that cannot be written to is said now."""
    if to == "-":
        return Target(Path("-"), to_stdout=True)
    path = Path(to).expanduser()
    if to.endswith("/") and not path.is_dir():
        raise wrong_usage(f"{path} is not a folder.")
    if not path.is_dir():
        if not path.parent.is_dir():
            raise wrong_usage(f"{path.parent} is not a folder.")
        _check_free(path, force)
    return Target(path, force=force)


def fetch(server: Server, dump: Item, wanted: Target, told: Told) -> Path:
    """Where it is now."""
    sent = _sent(server, dump)
    if wanted.to_stdout:
        _write(server, sent, sys.stdout.buffer, 0, told)
        sys.stdout.buffer.flush()
        return wanted.path
    place = wanted.named(sent.name)
    _check_free(place, wanted.force)
    partial = place.with_name(f"{place.name}.partial-{dump['jobId']}-{_mark(sent)}")
    try:
        with _opened(partial) as sink:
            _write(server, sent, sink, sink.tell(), told)
            sink.flush()
            _check(sink, sent, partial)
            os.fsync(sink.fileno())
            _check_free(place, wanted.force)
            partial.rename(place)
    except OSError as problem:
        raise CommandFailed(
            f"{partial} cannot be written: {problem.strerror}.",
            hint=f"What is there already is kept: paddock dumps download {dump['jobId']} -o {place} goes on with it.",
        ) from None
    return place


def _sent(server: Server, dump: Item) -> Sent:
    """It becomes part of names on this disk, so it is looked at."""
    id, name = str(dump["jobId"]), PurePath(str(dump.get("fileName") or dump["jobId"])).name
    if not DUMP.fullmatch(id) or name in ("", ".", "..") or "\\" in name or not name.isprintable():
        raise CommandFailed(f"The server names a dump {id!r} with a file {name!r}, which are no names of ours.")
    path = f"/export/jobs/{id}/download"
    about = server.about_file(path)
    return Sent(path, name, int(about["content-length"]), about.get("etag", ""), int(dump.get("partBytes") or 0))


def _mark(sent: Sent) -> str:
    return hashlib.sha256(sent.etag.encode()).hexdigest()[:12]


def _check_free(path: Path, force: bool) -> None:
    if path.is_dir() or (path.exists() and not force):
        raise wrong_usage(f"{path} is there already.", "Name another file, or write over it with --force.")


@contextlib.contextmanager
def _opened(partial: Path) -> Iterator[BinaryIO]:
    """At its end. What lies there may have been changed since, and not by us: a link is not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(partial, flags, 0o666), "r+b") as sink:
        try:
            fcntl.flock(sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CommandFailed(f"Another process is downloading to {partial}.", hint="Let it end.") from None
        sink.seek(0, os.SEEK_END)
        yield sink


def _write(server: Server, sent: Sent, sink: BinaryIO, start: int, told: Told) -> None:
    tries = 0
    while start < sent.size:
        before = start
        try:
            for chunk in server.download(sent.path, start=start, etag=sent.etag or None):
                start += len(chunk)
                if start > sent.size:
                    raise _Longer(f"{sent.name} is longer than the server said.", hint="Download it again.")
                sink.write(chunk)
                told(start, sent.size)
        except CommandFailed as problem:
            refused = isinstance(problem, _Longer) or (isinstance(problem, Refusal) and problem.status < 429)
            if refused or (start == before and tries == TRIES - 1):
                raise
        tries = 0 if start > before else tries + 1
        if tries == TRIES:
            raise CommandFailed(f"{sent.name} ended early.", hint="Download it again: it goes on where it stopped.")
        if start < sent.size:
            time.sleep(FIRST_PAUSE * 2**tries)


class _Longer(CommandFailed):
    pass


def _check(sink: BinaryIO, sent: Sent, partial: Path) -> None:
    """The whole of it: what an earlier download left is checked here for the first time."""
    from paddock.dumps.verifying.digest import chain_of

    sink.seek(0, os.SEEK_END)
    whole = sink.tell() == sent.size
    if whole and sent.part_size:
        sink.seek(0)
        whole = chain_of(sink, sent.part_size) == sent.digest
    if not whole:
        partial.unlink()
        raise CommandFailed(f"{sent.name} did not arrive as it was sent.", hint="Download it again.")
