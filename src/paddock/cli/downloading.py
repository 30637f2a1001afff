"""Files from the server to this disk: into a name of their own first, then by one rename to where they belong."""

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import BinaryIO, Literal
from uuid import UUID

from paddock.cli import replacing, resuming
from paddock.cli.connection import Server
from paddock.cli.endings import EXPORTS, Ending
from paddock.cli.errors import CommandFailed
from paddock.cli.output import Item

What = Literal["export", "snapshot"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Where the files of an export or a snapshot are to go."""

    path: Path
    single: bool
    to_stdout: bool = False
    force: bool = False
    ending: Ending | None = None


def wanted(to: str, *, force: bool = False) -> Wanted:
    """Before anything is asked of the server: a place that cannot be written to is said now."""
    if to == "-":
        return Wanted(Path("-"), single=True, to_stdout=True)
    path = Path(to).expanduser()
    if not path.suffix or to.endswith("/") or path.is_dir():
        replacing.check_folder(path, force=force)
        return Wanted(path, single=False, force=force)
    ending = EXPORTS.of(path, f" A folder is named with a slash at its end: {path.name}/")
    replacing.check_file(path, force=force)
    return Wanted(path, single=True, force=force, ending=ending)


def wanted_folder(to: str, *, force: bool = False) -> Wanted:
    """For what is many files, whatever the name looks like."""
    path = Path(to).expanduser()
    replacing.check_folder(path, force=force)
    return Wanted(path, single=False, force=force)


def fetch(server: Server, item: Item, target: Wanted, what: What = "export") -> None:
    id = _id(item, what)
    files = server.get(f"/api/{what}s/{id}/files")["files"]
    command = f"paddock {what}s download {id} --to"
    if target.single and len(files) != 1:
        raise CommandFailed(f"The {what} has {len(files)} files.", hint=f"{command} FOLDER")
    path = f"/api/{what}s/{id}/download"
    if target.to_stdout:
        try:
            _write(server, path, files[0], sys.stdout.buffer, 0)
        except KeyboardInterrupt:
            raise replacing.interrupted(None) from None
        sys.stdout.buffer.flush()
        return
    # All of them before the first is written.
    names = [str(_inside(file["name"])) for file in files]
    if target.single:
        EXPORTS.check(target.path, names[0], command)
    else:
        replacing.check_folder(target.path, force=target.force, writes=set(names).__contains__)
    partial = _partial(target, id)
    try:
        _download(server, path, dict(zip(names, files, strict=True)), partial, target)
    except KeyboardInterrupt:
        to = shlex.quote(str(target.path) if target.single else f"{target.path}/")
        again = f"{command} {to}{' --force' * target.force}"
        raise replacing.interrupted(again) from None


def _download(server: Server, path: str, files: Mapping[str, Item], partial: Path, target: Wanted) -> None:
    sums: dict[str, str] = {}
    for name, file in files.items():
        place = partial if target.single else partial / name
        _check_no_link(partial, place)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            sums[name] = _file(server, path, file, place)
        except OSError as problem:
            raise CommandFailed(f"{place} cannot be written: {problem.strerror}.") from None
    try:
        _settle(partial, target, sums)
    except OSError as problem:
        raise CommandFailed(
            f"{target.path} cannot be written: {problem.strerror}.",
            hint=f"What was downloaded is kept in {partial}; the next download resumes from there.",
        ) from None


def _partial(target: Wanted, id: UUID) -> Path:
    """On the disk of the place itself: a folder that is there may be a link, a disk of its own or where we stand."""
    if not target.single and target.path.is_dir():
        return target.path / f".partial-{id}"
    return target.path.with_name(f"{target.path.name}.partial-{id}")


def _id(item: Item, what: What) -> UUID:
    """It becomes part of a name on this disk."""
    try:
        return UUID(item["id"])
    except ValueError:
        raise CommandFailed(f"The server gives the {what} the id {item['id']!r}, which is no id.") from None


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


def _settle(partial: Path, target: Wanted, sums: Mapping[str, str]) -> None:
    """By one rename, or into the folder that is there."""
    if target.single:
        replacing.check_file(target.path, force=target.force)
        partial.replace(target.path)
    elif partial.parent == target.path:
        replacing.move_in(partial, target.path, sums, force=target.force)
    else:
        replacing.write_list(partial, sums)
        partial.rename(target.path)


def _file(server: Server, path: str, file: Item, place: Path) -> str:
    """Goes on where an earlier download of the same files ended; checked whole by its sum, which is returned."""
    with replacing.open_partial(place) as sink:
        _write(server, path, file, sink, sink.tell())
        sink.flush()
        os.fsync(sink.fileno())
    digest = replacing.digest_of(place)
    if file.get("sha256") and digest != file["sha256"]:
        place.unlink()
        raise CommandFailed(f"{place.name} did not arrive as it was sent.", hint="Download it again.")
    return digest


def _write(server: Server, path: str, file: Item, sink: BinaryIO, start: int) -> None:
    name, size = file["name"], file["bytes"]
    resuming.write_all(lambda at: server.download(path, start=at, file=name), name, size, sink, start)
