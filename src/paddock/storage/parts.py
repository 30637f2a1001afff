"""Objects that are sent part by part, over hours and by more than one process.

An upload outlives the process that began it: whoever knows its id sends the parts that are missing, or one again, and
completes it with the ETags that were noted. Until then no reader and no listing sees it. Of one upload every writer
must send the same bytes under the same number; then one that was taken for dead and goes on does no harm: its parts
change nothing, and an upload that was completed or aborted is `UploadGone` to it.

A key is used by one upload only, because of two the last one to complete would win. What stays of uploads that nobody
completes, `abort` removes, and `Store.delete_below`.

    a folder          one file, written at offsets beside its name, renamed at the end
    S3                a multipart upload
    GCS, Azure        obstore cannot take up an upload there: the parts stay objects, `key/000001` and so on
"""

import hashlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from paddock.storage.failures import not_found
from paddock.storage.store import CHUNK, Store, check_key
from paddock.storage.threads import change_on_io


@dataclass(frozen=True, slots=True)
class Whole:
    """What became of an upload. `objects`: as how many objects its parts stay; 0: they are one, under its key."""

    etag: str
    size: int
    objects: int


class Backend(Protocol):
    """What a kind of store does, on a thread that may block. Keys are checked; failures are classified."""

    least: int

    def begin(self, key: str) -> str: ...
    def send(self, key: str, upload: str, number: int, offset: int, data: bytes) -> str: ...
    def complete(self, key: str, upload: str, etags: Sequence[str], size: int) -> Whole: ...
    def abort(self, prefix: str, keep: str | None) -> int: ...


class Parts:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def least(self) -> int:
        """The smallest size of a part that is not the last."""
        return self._backend.least

    async def begin(self, key: str) -> str:
        return await change_on_io(self._backend.begin, check_key(key))

    async def send(self, key: str, upload: str, number: int, offset: int, data: bytes) -> str:
        """Its ETag. It is safe when this returns: the caller may note it. Numbers begin with 1, and all parts but the
        last have one size."""
        return await change_on_io(self._backend.send, check_key(key), upload, number, offset, data)

    async def complete(self, key: str, upload: str, etags: Sequence[str], size: int) -> Whole:
        """May be repeated: what is complete already is found to be so."""
        return await change_on_io(self._backend.complete, check_key(key), upload, etags, size)

    async def abort(self, prefix: str, keep: str | None = None) -> int:
        """Every open upload of this key or below this prefix, except those of one key. How many there were."""
        return await change_on_io(self._backend.abort, check_key(prefix.strip("/")), keep)


def open_parts(store: Store) -> Parts:
    """Connects to nothing yet. What each needs is imported only here: botocore is a large library."""
    backend = store.backend
    if store.local is not None:
        from paddock.storage.local import LocalBackend
        from paddock.storage.parts_local import LocalParts

        assert isinstance(backend, LocalBackend)
        return Parts(LocalParts(backend))
    from paddock.storage.remote import RemoteBackend

    assert isinstance(backend, RemoteBackend)
    if backend.bucket.scheme == "s3":
        from paddock.storage.parts_s3 import S3Parts

        return Parts(S3Parts(backend.uploads))
    from paddock.storage.parts_plain import PlainParts

    return Parts(PlainParts(backend))


async def read(
    store: Store, key: str, objects: int, part_size: int, size: int, start: int = 0, length: int | None = None
) -> AsyncIterator[bytes]:
    """What `complete` made, as one file. By ranges, as `Store.stream`."""
    end = size if length is None else min(size, start + length)
    while start < end:
        of, offset, left = key, start, end - start
        if objects:
            number, offset = divmod(start, part_size)
            of, left = part_key(key, number + 1), min(left, part_size - offset)
        data = await store.read_range(of, offset, min(CHUNK, left))
        if not data:
            raise not_found(store.url, of)
        start += len(data)
        yield data


def part_key(key: str, number: int) -> str:
    return f"{key}/{number:06}"


def etag_of(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def etag_of_parts(etags: Sequence[str]) -> str:
    """As S3 has it, and here every kind of store."""
    digests = b"".join(bytes.fromhex(etag) for etag in etags)
    return f"{etag_of(digests)}-{len(etags)}"
