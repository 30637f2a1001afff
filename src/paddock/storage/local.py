"""A store that is a folder.

Nothing below the root may be a symbolic link: each step is opened without following one, so that no link leads out of
the root, not even one that appears meanwhile. The root itself may be a link. An object is written to `name#1` beside
it, flushed to the disk, then renamed: what a kill leaves is a `#1` that no listing shows and `delete_below` removes.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TypeVar

from paddock.storage.failures import incomplete, of_folder
from paddock.storage.store import CHUNK, TEMPORARY, Backend, Removed, Seen, Source, StoredObject

Taken = TypeVar("Taken")

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# NONBLOCK: to open a pipe that somebody put there must not wait for its other end.
READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP, errno.ENOSYS})
TRIES = 20


class LocalBackend:
    def __init__(self, folder: Path) -> None:
        self.local: Path | None = folder.absolute()
        self._root = folder.absolute()
        self.url = str(self._root)

    def put(self, key: str, data: bytes) -> None:
        left = memoryview(data)

        def source(length: int) -> bytes:
            nonlocal left
            taken, left = left[:length], left[length:]
            return bytes(taken)

        self.write(key, source, len(data))

    def create(self, key: str, data: bytes) -> bool:
        with self.failures(key, writing=True), self._placed(key, new_file) as (folder, temporary, name, file):
            with closing(file):
                _write_all(file, data)
                os.fsync(file)
            if not _publish_new(folder, temporary, name):
                return False
            os.fsync(folder)
        return True

    def replace(self, key: str, data: bytes, tag: Mapping[str, str]) -> bool:
        with self.failures(key, writing=True), self._placed(key, new_file) as (folder, temporary, name, file):
            with closing(file):
                _write_all(file, data)
                os.fsync(file)
            # Of the folder itself: every Paddock of this machine takes it before it compares.
            fcntl.flock(folder, fcntl.LOCK_EX)
            try:
                known = os.stat(name, dir_fd=folder, follow_symlinks=False)
            except FileNotFoundError:
                return False
            if _tag(known) != tag:
                return False
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)
        return True

    def seen(self, key: str) -> Seen | None:
        try:
            with self._opened(key) as file:
                known = os.fstat(file)
                return Seen(_read_all(file), _tag(known))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            raise of_folder(self.url, key, problem) from None

    def write(self, key: str, source: Source, size: int) -> None:
        with self.failures(key, writing=True), self._placed(key, new_file) as (folder, temporary, name, file):
            with closing(file):
                while data := source(CHUNK):
                    _write_all(file, data)
                if os.fstat(file).st_size != size:
                    raise incomplete("What was being uploaded has another size than it had.")
                os.fsync(file)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            os.fsync(folder)

    def link(self, key: str, path: Path) -> bool:
        def link(temporary: str, folder: int) -> None:
            os.link(path, temporary, dst_dir_fd=folder, follow_symlinks=False)

        with self.failures(key, writing=True):
            try:
                with self._placed(key, link) as (folder, temporary, name, _):
                    _flush(temporary, folder)
                    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
                    os.fsync(folder)
            except OSError as problem:
                if problem.errno in NO_LINKS:
                    return False
                raise
        return True

    def copy(self, key: str, other: Backend, other_key: str) -> bool:
        return False

    def read_range(self, key: str, start: int, length: int) -> bytes:
        with self.failures(key), self._opened(key) as file:
            chunks = []
            while length > 0 and (data := os.pread(file, min(length, CHUNK), start)):
                chunks.append(data)
                start, length = start + len(data), length - len(data)
            return b"".join(chunks)

    def size(self, key: str) -> int | None:
        found = self.entry(key)
        return None if found is None else found.size

    def entry(self, key: str) -> StoredObject | None:
        try:
            with self._opened(key) as file:
                known = os.fstat(file)
                changed = datetime.fromtimestamp(known.st_mtime, UTC)
                return StoredObject(key, known.st_size, changed, _tag(known)["file"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as problem:
            raise of_folder(self.url, key, problem) from None

    def entries(self, prefix: str, unfinished: bool) -> Iterator[StoredObject]:
        for entry, temporary in self.walk(prefix):
            if unfinished or not temporary:
                yield entry

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            with self.failures(key), suppress(FileNotFoundError, NotADirectoryError):
                with self.parent(key) as (folder, name):
                    os.unlink(name, dir_fd=folder)
                self._remove_empty(key.split("/")[:-1])

    def delete_unfinished(self, keys: Sequence[str]) -> None:
        for key in keys:
            # A kill takes the first free number: they have no gaps.
            with (
                self.failures(key),
                suppress(FileNotFoundError, NotADirectoryError),
                self.parent(key) as (folder, name),
            ):
                for number in count(1):
                    os.unlink(f"{name}#{number}", dir_fd=folder)

    def delete_below(self, prefix: str, older_than: datetime | None) -> Removed:
        removed, size = 0, 0
        for entry, _ in [*self.walk(prefix)]:
            if older_than is not None and entry.modified >= older_than:
                continue
            with self.failures(entry.key), suppress(FileNotFoundError):
                with self.parent(entry.key) as (folder, name):
                    os.unlink(name, dir_fd=folder)
                removed, size = removed + 1, size + entry.size
        with self.failures(prefix), suppress(FileNotFoundError, NotADirectoryError):
            self._remove_empty_below(prefix.split("/"))
        return Removed(removed, size)

    def needs_lifecycle_rule(self) -> bool:
        return False

    def sign(self, key: str, expires: timedelta) -> str | None:
        return None

    @contextmanager
    def failures(self, key: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as problem:
            if writing:
                raise incomplete(f"While '{key}' was being written, somebody removed it.") from None
            raise of_folder(self.url, key, problem) from None
        except OSError as problem:
            raise of_folder(self.url, key, problem) from None

    @contextmanager
    def _placed(self, key: str, make: Callable[[str, int], Taken]) -> Iterator[tuple[int, str, str, Taken]]:
        """Its folder, a temporary name in it that `make` has taken, the name it shall have, and what `make` gave.
        Whoever leaves without renaming leaves nothing."""
        *segments, name = key.split("/")
        folder, temporary, taken = self.claim(segments, name, make)
        try:
            yield folder, temporary, name, taken
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=folder)
            os.close(folder)

    def claim(
        self, segments: Sequence[str], name: str, make: Callable[[str, int], Taken], first: int = 1, tries: int = TRIES
    ) -> tuple[int, str, Taken]:
        """The folder, made where it is missing and the caller's to close; the name that was free, and what `make` gave."""
        try:
            return self._claim_once(segments, name, make, first)
        except FileNotFoundError:
            # Another emptied and removed a folder between our making and our using it.
            if tries == 1:
                raise
            return self.claim(segments, name, make, first, tries - 1)

    def _claim_once(
        self, segments: Sequence[str], name: str, make: Callable[[str, int], Taken], first: int
    ) -> tuple[int, str, Taken]:
        folder = self._descend(segments, make=True)
        try:
            return folder, *_first_free(name, make, folder, first)
        except BaseException:
            os.close(folder)
            raise

    @contextmanager
    def parent(self, key: str) -> Iterator[tuple[int, str]]:
        *segments, name = key.split("/")
        with self._folder(segments) as folder:
            yield folder, name

    @contextmanager
    def _folder(self, segments: Sequence[str]) -> Iterator[int]:
        folder = self._descend(segments)
        try:
            yield folder
        finally:
            os.close(folder)

    def _descend(self, segments: Sequence[str], *, make: bool = False) -> int:
        if make:
            self._root.mkdir(parents=True, exist_ok=True)
        # The root may be a link: whoever configured it meant where it leads.
        folder = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY)
        for segment in segments:
            try:
                below = _make_and_open(segment, folder) if make else os.open(segment, FOLDER, dir_fd=folder)
            finally:
                os.close(folder)
            folder = below
        return folder

    @contextmanager
    def _opened(self, key: str) -> Iterator[int]:
        with self.parent(key) as (folder, name):
            file = os.open(name, READ, dir_fd=folder)
        try:
            if not stat.S_ISREG(os.fstat(file).st_mode):
                raise FileNotFoundError(errno.ENOENT, "Not a file")
            yield file
        finally:
            os.close(file)

    def walk(self, prefix: str) -> Iterator[tuple[StoredObject, bool]]:
        try:
            folder = self._descend(prefix.split("/") if prefix else [])
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as problem:
            raise of_folder(self.url, prefix, problem) from None
        try:
            with self.failures(prefix):
                yield from _walk(folder, f"{prefix}/" if prefix else "")
        finally:
            os.close(folder)

    def _remove_empty(self, segments: Sequence[str]) -> None:
        """The folders on this way, deepest first, as long as they are empty."""
        while segments:
            try:
                with self._folder(segments[:-1]) as folder:
                    os.rmdir(segments[-1], dir_fd=folder)
            except FileNotFoundError:
                pass
            except OSError:
                return
            segments = segments[:-1]

    def _remove_empty_below(self, segments: Sequence[str]) -> None:
        with self._folder(segments) as folder:
            names = [item.name for item in os.scandir(folder) if item.is_dir(follow_symlinks=False)]
        for name in names:
            self._remove_empty_below([*segments, name])
        self._remove_empty(segments)


def _make_and_open(segment: str, above: int) -> int:
    with suppress(FileExistsError):
        os.mkdir(segment, dir_fd=above)
        os.fsync(above)
    return os.open(segment, FOLDER, dir_fd=above)


def _walk(folder: int, above: str) -> Iterator[tuple[StoredObject, bool]]:
    with os.scandir(folder) as items:
        found = sorted(items, key=lambda item: item.name)
    for item in found:
        try:
            if item.is_dir(follow_symlinks=False):
                below = os.open(item.name, FOLDER, dir_fd=folder)
                try:
                    yield from _walk(below, f"{above}{item.name}/")
                finally:
                    os.close(below)
            elif item.is_file(follow_symlinks=False):
                known = os.stat(item.name, dir_fd=folder, follow_symlinks=False)
                modified = datetime.fromtimestamp(known.st_mtime, UTC)
                yield StoredObject(above + item.name, known.st_size, modified), bool(TEMPORARY.search(item.name))
        except (FileNotFoundError, NotADirectoryError):
            continue  # deleted meanwhile, or replaced by what we do not follow


def _first_free(name: str, make: Callable[[str, int], Taken], folder: int, first: int) -> tuple[str, Taken]:
    for number in count(first):
        with suppress(FileExistsError):
            return f"{name}#{number}", make(f"{name}#{number}", folder)
    raise AssertionError


def new_file(name: str, folder: int) -> int:
    return os.open(name, WRITE, 0o666, dir_fd=folder)


@contextmanager
def closing(file: int) -> Iterator[None]:
    try:
        yield
    finally:
        os.close(file)


def _publish_new(folder: int, temporary: str, name: str) -> bool:
    try:
        os.link(temporary, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except FileExistsError:
        return False
    except OSError as problem:
        if problem.errno not in NO_LINKS:
            raise
        # A file system without links: the name is taken first, empty, then filled by the rename.
        try:
            os.close(os.open(name, WRITE, 0o666, dir_fd=folder))
        except FileExistsError:
            return False
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _write_all(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _read_all(file: int) -> bytes:
    chunks = []
    while data := os.read(file, CHUNK):
        chunks.append(data)
    return b"".join(chunks)


def _tag(known: os.stat_result) -> Mapping[str, str]:
    """A file that was renamed into its place is another one, whatever it holds."""
    return {"file": f"{known.st_ino}-{known.st_mtime_ns}-{known.st_size}"}


def _flush(name: str, folder: int) -> None:
    file = os.open(name, READ, dir_fd=folder)
    with closing(file):
        os.fsync(file)
