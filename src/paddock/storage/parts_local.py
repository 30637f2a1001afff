"""Uploads by parts into a folder: one file beside the name it shall have, `name#12345678901234`.

A listing leaves such names out, `delete_below` and `abort` remove them. A part is on the disk when `send` returns.
Only `begin` makes the file: a late `send` finds it renamed or gone, and makes nothing new.
"""

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from paddock.storage.failures import of_folder, upload_gone
from paddock.storage.local import LocalBackend, closing, new_file
from paddock.storage.parts import Whole, etag_of, etag_of_parts
from paddock.storage.store import TEMPORARY

WRITE = os.O_WRONLY | os.O_NOFOLLOW
# As many digits as fit behind the longest name. Drawn, so that who was late does not meet an upload begun after his.
DIGITS = 14
ID = re.compile(r"[0-9]{14,15}")


class LocalParts:
    least = 1

    def __init__(self, folder: LocalBackend) -> None:
        self._folder = folder

    def begin(self, key: str) -> str:
        *segments, name = key.split("/")
        first = secrets.randbelow(9 * 10 ** (DIGITS - 1)) + 10 ** (DIGITS - 1)
        with self._folder.failures(key, writing=True):
            folder, temporary, file = self._folder.claim(segments, name, new_file, first)
            with closing(folder), closing(file):
                os.fsync(folder)
        return temporary.rpartition("#")[2]

    def send(self, key: str, upload: str, number: int, offset: int, data: bytes) -> str:
        with self._failures(key), self._folder.parent(key) as (folder, name), _opened(name, upload, folder) as file:
            left = memoryview(data)
            while left:
                written = os.pwrite(file, left, offset)
                left, offset = left[written:], offset + written
            os.fsync(file)
        return etag_of(data)

    def complete(self, key: str, upload: str, etags: Sequence[str], size: int) -> Whole:
        with self._failures(key), self._folder.parent(key) as (folder, name):
            try:
                self._publish(name, upload, folder, size)
            except FileNotFoundError:
                # The answer to an earlier call was lost, or another attempt was faster: then all of it is there.
                if self._folder.size(key) != size:
                    raise
            os.fsync(folder)
        self._folder.delete(self._of(key))
        return Whole(etag_of_parts(etags), size, 0)

    def abort(self, prefix: str, keep: str | None) -> int:
        """The prefix may also be a key: its files lie beside it."""
        found = [entry.key for entry, temporary in self._folder.walk(prefix.rpartition("/")[0]) if temporary]
        below = [key for key in found if f"{TEMPORARY.sub('', key)}/".startswith(f"{prefix}/")]
        others = [key for key in below if TEMPORARY.sub("", key) != keep]
        self._folder.delete(others)
        return len(others)

    def _of(self, key: str) -> list[str]:
        """What is beside the key, not yet it."""
        above = key.rpartition("/")[0]
        with (
            self._failures(key),
            suppress(FileNotFoundError, NotADirectoryError),
            self._folder.parent(key) as (folder, name),
        ):
            found = [other for other in os.listdir(folder) if other != name and TEMPORARY.sub("", other) == name]
            return [f"{above}/{other}" if above else other for other in found]
        return []

    def _publish(self, name: str, upload: str, folder: int, size: int) -> None:
        with _opened(name, upload, folder) as file:
            if os.fstat(file).st_size != size:
                raise upload_gone(self._folder.url, name)
            os.fsync(file)
        os.rename(_temporary(name, upload), name, src_dir_fd=folder, dst_dir_fd=folder)

    @contextmanager
    def _failures(self, key: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise upload_gone(self._folder.url, key) from None
        except OSError as problem:
            raise of_folder(self._folder.url, key, problem) from None


@contextmanager
def _opened(name: str, upload: str, folder: int) -> Iterator[int]:
    file = os.open(_temporary(name, upload), WRITE, dir_fd=folder)
    with closing(file):
        yield file


def _temporary(name: str, upload: str) -> str:
    if not ID.fullmatch(upload):
        raise FileNotFoundError
    return f"{name}#{upload}"
