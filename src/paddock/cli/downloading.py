"""Files from the server to this disk: into a name of their own first, then by one rename to where they belong."""

import hashlib
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO
from uuid import UUID

from paddock.cli.connection import Refusal, Server
from paddock.cli.errors import CommandFailed, wrong_usage
from paddock.cli.output import Item

TRIES = 5
FIRST_PAUSE = 0.5
ENDINGS = (".parquet", ".csv", ".jsonl", ".ndjson", ".gz", ".zst")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where the files of an export are to go."""

    path: Path
    single: bool
    to_stdout: bool = False
    force: bool = False


def wanted(to: str, *, force: bool = False) -> Wanted:
    """Before anything is asked of the server: a place that cannot be written to is said now."""
    if to == "-":
        return Wanted(Path("-"), single=True, to_stdout=True)
    path = Path(to).expanduser()
    single = path.suffix in ENDINGS and not to.endswith("/") and not path.is_dir()
    if not path.parent.is_dir():
        raise wrong_usage(f"{path.parent} is not a folder.")
    if not force and (path.exists() and (single or any(path.iterdir()))):
        raise wrong_usage(f"{path} is there already.", "Name another place, or write over it with --force.")
    return Wanted(path, single, force=force)


def fetch(server: Server, export: Item, target: Wanted) -> None:
    id = _id(export)
    files = server.get(f"/api/exports/{id}/files")["files"]
    if target.single and len(files) != 1:
        raise CommandFailed(f"The export has {len(files)} files.", hint=f"paddock exports download {id} --to FOLDER")
    path = f"/api/exports/{id}/download"
    if target.to_stdout:
        _write(server, path, files[0], sys.stdout.buffer, 0)
        sys.stdout.buffer.flush()
        return
    partial = target.path.with_name(f"{target.path.name}.partial-{id}")
    # All of them before the first is written.
    places = [partial if target.single else partial / _inside(file["name"]) for file in files]
    for file, place in zip(files, places, strict=True):
        _check_no_link(partial, place)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            _file(server, path, file, place)
        except OSError as problem:
            raise CommandFailed(f"{place} cannot be written: {problem.strerror}.") from None
    _settle(partial, target)


def _id(export: Item) -> UUID:
    """It becomes part of a name on this disk."""
    try:
        return UUID(export["id"])
    except ValueError:
        raise CommandFailed(f"The server names an export {export['id']!r}, which is no id.") from None


def _inside(name: str) -> PurePosixPath:
    """A name that the server gave, if it stays in the folder it is put into, whatever the system."""
    either = PureWindowsPath(name)  # knows both slashes, and drives
    if not either.parts or either.anchor or ".." in either.parts or "\0" in name:
        raise CommandFailed(
            f"The server names a file {name!r}, which would not be inside the folder.",
            hint="Nothing was written. Have somebody look at that server.",
        )
    return PurePosixPath(name)


def _check_no_link(partial: Path, place: Path) -> None:
    """What lies there from an earlier try may have been changed since, and not by us."""
    if place.resolve() != partial.parent.resolve() / place.relative_to(partial.parent):
        raise CommandFailed(f"{place} leads elsewhere by a link.", hint=f"Remove {partial}, then download again.")


def _settle(partial: Path, target: Wanted) -> None:
    """The one rename. What --force takes away goes first to a name of its own."""
    if target.path.is_dir():
        if any(target.path.iterdir()):
            old = partial.with_name(partial.name.replace(".partial-", ".old-"))
            target.path.rename(old)
            partial.rename(target.path)
            shutil.rmtree(old)
            return
        target.path.rmdir()
    partial.rename(target.path)


def _file(server: Server, path: str, file: Item, place: Path) -> None:
    """Goes on where an earlier download of the same export ended; checked whole by its sum."""
    with place.open("ab") as sink:
        _write(server, path, file, sink, sink.tell())
    if file.get("sha256") and _sum(place) != file["sha256"]:
        place.unlink()
        raise CommandFailed(f"{place.name} did not arrive as it was sent.", hint="Download it again.")


def _write(server: Server, path: str, file: Item, sink: BinaryIO, start: int) -> None:
    for attempt in range(TRIES):
        if start >= file["bytes"]:
            return
        if attempt:
            time.sleep(FIRST_PAUSE * 2**attempt)
        try:
            for chunk in server.download(path, start=start, file=file["name"]):
                start += len(chunk)
                if start > file["bytes"]:
                    raise CommandFailed(f"{file['name']} is longer than the server said.", hint="Download it again.")
                sink.write(chunk)
        except CommandFailed as problem:
            refused = isinstance(problem, Refusal) and problem.status < 429
            if attempt == TRIES - 1 or refused or start > file["bytes"]:
                raise
    if start < file["bytes"]:
        raise CommandFailed(f"{file['name']} ended early.", hint="Download it again: it goes on where it stopped.")


def _sum(place: Path) -> str:
    with place.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
