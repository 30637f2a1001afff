"""The file of a dump from the server to this disk: under a name of its own first, then by one rename to where it belongs.

What a broken download left is gone on with, by whichever process: the name says of which dump and which bytes it is a
part, one process at a time writes to it, and at the end its sum is compared with the server's.
"""

import hashlib
import os
import re
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO

from paddock.cli import replacing, resuming
from paddock.cli.connection import Server
from paddock.cli.endings import DUMPS, Ending
from paddock.cli.errors import CommandFailed, wrong_usage
from paddock.cli.output import Item

DUMP = re.compile(r"export_[0-9]{8}-[0-9]{6}_[0-9a-z]{6}")

# Bytes that are here, and all there are.
Told = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Target:
    """Where the file is to go: a name, a folder that it gets its own name in, or standard output."""

    path: Path
    to_stdout: bool = False
    force: bool = False
    ending: Ending | None = None

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
    if path.is_dir():
        return Target(path, force=force)
    ending = DUMPS.of(path)
    replacing.check_file(path, force=force)
    return Target(path, force=force, ending=ending)


def fetch(server: Server, dump: Item, wanted: Target, told: Told) -> Path:
    """Where it is now."""
    sent = _dump_file(server, dump)
    if wanted.to_stdout:
        try:
            _write(server, sent, sys.stdout.buffer, 0, told)
        except KeyboardInterrupt:
            raise replacing.interrupted(None) from None
        sys.stdout.buffer.flush()
        return wanted.path
    place = wanted.named(sent.name)
    DUMPS.check(place, sent.name, f"paddock dumps download {dump['jobId']} -o")
    replacing.check_file(place, force=wanted.force)
    again = f"paddock dumps download {dump['jobId']} -o {shlex.quote(str(place))}{' --force' * wanted.force}"
    partial = place.with_name(f"{place.name}.partial-{dump['jobId']}-{_mark(sent)}")
    try:
        with replacing.open_partial(partial) as sink:
            _write(server, sent, sink, sink.tell(), told)
            sink.flush()
            _check(sink, sent, partial)
            os.fsync(sink.fileno())
            replacing.check_file(place, force=wanted.force)
            partial.rename(place)
    except OSError as problem:
        raise CommandFailed(
            f"{partial} cannot be written: {problem.strerror}.",
            hint=f"What is there already is kept: `{again}` resumes it.",
        ) from None
    except KeyboardInterrupt:
        raise replacing.interrupted(again) from None
    return place


def _dump_file(server: Server, dump: Item) -> Sent:
    """It becomes part of names on this disk, so it is looked at."""
    id, name = str(dump["jobId"]), PurePath(str(dump.get("fileName") or dump["jobId"])).name
    if not DUMP.fullmatch(id) or name in ("", ".", "..") or "\\" in name or not name.isprintable():
        raise CommandFailed(f"The server names a dump {id!r} with a file {name!r}, which are no names of ours.")
    path = f"/export/jobs/{id}/download"
    about = server.about_file(path)
    return Sent(path, name, int(about["content-length"]), about.get("etag", ""), int(dump.get("partBytes") or 0))


def _mark(sent: Sent) -> str:
    return hashlib.sha256(sent.etag.encode()).hexdigest()[:12]


def _write(server: Server, sent: Sent, sink: BinaryIO, start: int, told: Told) -> None:
    resuming.write_all(
        lambda at: server.download(sent.path, start=at, etag=sent.etag or None),
        sent.name,
        sent.size,
        sink,
        start,
        lambda here: told(here, sent.size),
    )


def _check(sink: BinaryIO, sent: Sent, partial: Path) -> None:
    """The whole of it: what an earlier download left is checked here for the first time."""
    from paddock.dumps.digesting import chain_of

    sink.seek(0, os.SEEK_END)
    whole = sink.tell() == sent.size
    if whole and sent.part_size:
        sink.seek(0)
        whole = chain_of(sink, sent.part_size) == sent.digest
    if not whole:
        partial.unlink()
        raise CommandFailed(f"{sent.name} did not arrive as it was sent.", hint="Download it again.")
