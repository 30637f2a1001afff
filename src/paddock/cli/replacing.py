"""What a download may write over, on this disk.

An export or a snapshot that is downloaded into a folder leaves the list of its files there (`.paddock-export.json`). By that list a
later download knows which files are an export's and which are somebody's: it may replace the files that it writes
itself, and remove listed files that are still as they were left. Anything else in the folder stops it, by name, before
a byte of the folder is changed.

New files are complete before the first of them moves into its place, old ones go last, and until then the list names
both. So a full disk changes nothing, and a process that is killed halfway leaves a folder where everything is known to
be an export's: the same command with --force repairs it.
"""

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from paddock.cli.errors import INTERRUPTED, CommandFailed, wrong_usage

LIST = ".paddock-export.json"
NEW_LIST = f"{LIST}.new"
PARTIAL = re.compile(r"\.partial-[0-9a-f-]{36}")
# As exports name their files, wherever in the folder.
PART = re.compile(r"(?:.*/)?part-[0-9]{5,}\.(?:parquet|csv|jsonl)(?:\.gz|\.zst)?")
MOST_NAMED = 5
# Of what is not an export's: then the folder is refused, however much more there is.
MOST_LOOKED_AT = 1000


@dataclass(frozen=True, slots=True)
class Content:
    """Of a folder: its files that are an export's, as the list names them, and the rest."""

    listed: Mapping[str, str]
    others: Collection[str]


def check_file(path: Path, *, force: bool) -> None:
    """A file may be written here. A device or a pipe is never replaced by one."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        _check_writable(path.parent)
        return
    except OSError as problem:
        raise wrong_usage(f"{path} cannot be written: {problem.strerror}.") from None
    if not stat.S_ISREG(mode) and not stat.S_ISLNK(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise wrong_usage(f"{path} is {what}, so no file can take its place.", "Name another file.")
    if not force:
        raise wrong_usage(f"{path} is there already.", "Name another file, or write over it with --force.")
    _check_writable(path.parent)


def check_folder(path: Path, *, force: bool, writes: Callable[[str], object] = PART.fullmatch) -> Content:
    """The files of an export may be put here; `writes` tells which names they have, or may have."""
    if not path.is_dir():
        if os.path.lexists(path):
            raise wrong_usage(f"{path} is not a folder.", "Name another place: the files go into a folder.")
        _check_writable(path.parent)
        return Content({}, ())
    _check_writable(path)
    content = _content_of(path, writes)
    if content.others:
        raise wrong_usage(
            f"{path} holds what no download left there: {_named(content.others)}.",
            "Name a new or an empty folder. --force replaces files of an earlier download only.",
        )
    if not force and any(not PARTIAL.fullmatch(entry.name) for entry in path.iterdir()):
        raise wrong_usage(
            f"{path} holds an earlier download already.", "Name another folder, or replace those files with --force."
        )
    return content


def _check_writable(folder: Path) -> None:
    if not folder.is_dir():
        raise wrong_usage(f"{folder} is not a folder.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise wrong_usage(f"{folder} cannot be written to: you have no permission.", "Name another place.")


def _content_of(folder: Path, writes: Callable[[str], object]) -> Content:
    known, listed, others = _read_list(folder), {}, set()
    for name, is_file in _walk(folder):
        if not is_file:
            # A folder is nothing that could be lost, unless a file is to take its place; a link or a pipe is.
            if writes(name) or not (folder / name).is_dir() or (folder / name).is_symlink():
                others.add(name)
        elif name in known and _is_as_left(folder / name, known[name]):
            listed[name] = known[name]
        elif not writes(name):
            others.add(name)
        if len(others) == MOST_LOOKED_AT:
            break
    return Content(listed, others)


def _walk(folder: Path) -> Iterator[tuple[str, bool]]:
    """All that is in the folder, and whether it is a regular file. Partial downloads of ours do not count."""

    def fail(problem: OSError) -> None:
        raise wrong_usage(f"{problem.filename} cannot be read: {problem.strerror}.") from None

    for place, folders, files in os.walk(folder, onerror=fail):
        inside = Path(place).relative_to(folder)
        if inside == Path():
            folders[:] = [name for name in folders if not PARTIAL.fullmatch(name)]
            files[:] = [name for name in files if name not in (LIST, NEW_LIST)]
        for name in folders:
            yield (inside / name).as_posix(), False
        for name in files:
            yield (inside / name).as_posix(), stat.S_ISREG((Path(place) / name).lstat().st_mode)


def _named(others: Collection[str]) -> str:
    """Of a whole tree only where it begins."""
    first = sorted({name.split("/")[0] for name in others})
    more = f" and {len(first) - MOST_NAMED} more" if len(first) > MOST_NAMED else ""
    return ", ".join(first[:MOST_NAMED]) + more


def _read_list(folder: Path) -> Mapping[str, str]:
    """Name and sum of each file; a list that cannot be read knows of none."""
    try:
        files = json.loads((folder / LIST).read_bytes())["files"]
        return {str(name): str(digest) for name, digest in files.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def write_list(folder: Path, sums: Mapping[str, str]) -> None:
    new = folder / NEW_LIST
    new.unlink(missing_ok=True)
    with new.open("x", encoding="utf-8") as file:
        json.dump({"about": "Files that a Paddock export left here.", "files": dict(sums)}, file, indent=1)
    new.replace(folder / LIST)


def _is_as_left(path: Path, digest: str) -> bool:
    try:
        return digest_of(path) == digest
    except OSError:
        return False


def digest_of(path: Path) -> str:
    with path.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def move_in(partial: Path, folder: Path, sums: Mapping[str, str], *, force: bool) -> None:
    """The files of a complete download into a folder that is there, and what an earlier export left out of it."""
    with _locked(folder):
        # Once more: a download may take hours, and somebody may have used the folder meanwhile.
        before = check_folder(folder, force=force, writes=sums.__contains__).listed
        write_list(folder, {**before, **sums})
        for name in sums:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (partial / name).replace(folder / name)
        for name in before.keys() - sums.keys():
            (folder / name).unlink(missing_ok=True)
            _remove_empty(folder, folder / name)
        write_list(folder, sums)
    shutil.rmtree(partial, ignore_errors=True)


def _remove_empty(folder: Path, path: Path) -> None:
    """The folders of a file that went, as far as nothing else is in them."""
    with contextlib.suppress(OSError):
        for parent in path.parents:
            if parent == folder:
                return
            parent.rmdir()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One at a time changes a folder. Some network file systems have no such locks: there nothing is locked."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _lock(descriptor, folder)
        yield
    finally:
        os.close(descriptor)


def _lock(file: BinaryIO | int, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise CommandFailed(f"Another process is downloading to {path}.", hint="Let it end.") from None
    except OSError as problem:
        if problem.errno not in (errno.EBADF, errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


@contextlib.contextmanager
def open_partial(partial: Path) -> Iterator[BinaryIO]:
    """At its end. What lies there may have been changed since, and not by us: a link is not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(partial, flags, 0o666), "r+b") as sink:
        _lock(sink, partial)
        sink.seek(0, os.SEEK_END)
        yield sink


def interrupted(again: str | None) -> CommandFailed:
    """Ctrl-C during a download; `again` is the command that goes on with it, where something is kept."""
    if again is None:
        return CommandFailed("\nInterrupted: what was written is not all of it.", exit_code=INTERRUPTED)
    return CommandFailed(
        "\nInterrupted; what was downloaded so far is kept.", hint=f"`{again}` resumes it.", exit_code=INTERRUPTED
    )
