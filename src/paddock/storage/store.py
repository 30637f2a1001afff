"""Where output is kept: a folder, or a bucket of S3, Google Cloud Storage or Azure.

A store's URL names the place, never a credential:

    exports/  or  /srv/exports  or  file:///srv/exports      a folder
    s3://bucket/prefix                                       S3, and everything that speaks its protocol
    gs://bucket/prefix                                       Google Cloud Storage
    az://container/prefix                                    Azure Blob Storage

Credentials come from the environment under the providers' own names (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS,
AZURE_STORAGE_ACCOUNT_NAME, ...) or from the machine's identity. MinIO, SeaweedFS and Cloudflare R2 are `s3://` with an
endpoint: AWS_ENDPOINT_URL, or `s3://bucket/prefix?endpoint=https://...&region=auto` where two of them are used side by
side. There is no `r2://`: it would be a second name for the same thing.

Keys are relative to the URL's prefix. A write is either whole or not there; nothing half written is ever listed.
What fails is said by one of the errors of `paddock.storage.failures`.
"""

import asyncio
import re
import threading
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from paddock.config import NO_STORE, Config, ConfigError
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.failures import bad_key, not_found
from paddock.storage.threads import IO, change_on_io, on_io

MAX_KEY = 900
MAX_SEGMENT = 240
# What a killed upload to a folder leaves behind is named so; see `paddock.storage.local`.
TEMPORARY = re.compile(r"#\d+$")
CHUNK = 8 << 20
# A file is read for its upload in pieces of this size, whatever its parts are: whole parts find no room between what
# others left behind in the heap, which then grows by all of them.
PIECE = 256 << 10
LISTED_AT_ONCE = 1000
# How long a cancelled upload may take to clean up behind itself before the caller goes on without it.
PATIENCE = 5.0

# Gives at most so many bytes, nothing at the end.
Source = Callable[[int], bytes]


@dataclass(frozen=True, slots=True)
class StoredObject:
    key: str
    size: int
    modified: datetime
    # Of this very content, where the store tells.
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """A small object as it was read. No other content under its key, before or after, has the same tag."""

    data: bytes
    tag: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Removed:
    count: int = 0
    bytes: int = 0


class Backend(Protocol):
    """What a kind of store does, on a thread that may block. Keys are checked; failures are classified."""

    url: str
    local: Path | None

    def put(self, key: str, data: bytes) -> None: ...
    def create(self, key: str, data: bytes) -> bool: ...
    def replace(self, key: str, data: bytes, tag: Mapping[str, str]) -> bool: ...
    def seen(self, key: str) -> Seen | None: ...
    def write(self, key: str, source: Source, size: int) -> None:
        """All of it or nothing. What the source raises ends the upload and is raised again."""

    def link(self, key: str, path: Path) -> bool:
        """The file becomes the object without a copy. False: it cannot here."""

    def copy(self, key: str, other: "Backend", other_key: str) -> bool:
        """The store copies by itself. False: it cannot."""

    def read_range(self, key: str, start: int, length: int) -> bytes: ...
    def size(self, key: str) -> int | None: ...
    def entry(self, key: str) -> StoredObject | None: ...
    def entries(self, prefix: str, unfinished: bool) -> Iterator[StoredObject]: ...
    def delete(self, keys: Sequence[str]) -> None: ...
    def delete_unfinished(self, keys: Sequence[str]) -> None: ...
    def delete_below(self, prefix: str, older_than: datetime | None) -> Removed: ...
    def needs_lifecycle_rule(self) -> bool: ...
    def sign(self, key: str, expires: timedelta) -> str | None: ...


class Stopped(Exception):
    """Raised into an upload whose caller was cancelled."""


class Store:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    @property
    def backend(self) -> Backend:
        """For what this package builds on it."""
        return self._backend

    @property
    def url(self) -> str:
        """Without credentials: it may be shown and logged."""
        return self._backend.url

    @property
    def local(self) -> Path | None:
        """The folder, where the store is one."""
        return self._backend.local

    async def put(self, key: str, data: bytes) -> None:
        await change_on_io(self._backend.put, check_key(key), data)

    async def create(self, key: str, data: bytes) -> bool:
        """False: there is something under this key, and it stays."""
        return await change_on_io(self._backend.create, check_key(key), data)

    async def replace(self, key: str, data: bytes, seen: Seen | None) -> bool:
        """False: what is under this key is no longer what was seen there, and it stays. A store that knows no
        conditions puts it anyway."""
        if seen is None:
            return await self.create(key, data)
        return await change_on_io(self._backend.replace, check_key(key), data, seen.tag)

    async def seen(self, key: str) -> Seen | None:
        """All of it in memory, with what `replace` wants to know. None: there is no such object."""
        return await on_io(self._backend.seen, check_key(key))

    async def upload(self, key: str, path: Path, *, give: bool = False) -> None:
        """A file from disk. Given away, it may be linked instead of copied: the caller only removes it any more."""
        await self._whole(lambda stop: self._upload(check_key(key), path, give, stop))

    async def copy_to(self, key: str, other: "Store", other_key: str) -> None:
        """Through this machine only where the store cannot do it by itself; never all of it in memory."""
        await self._whole(lambda stop: self._copy(check_key(key), other._backend, check_key(other_key), stop))

    async def read(self, key: str) -> bytes:
        """All of it in memory: for what is small."""
        return b"".join([chunk async for chunk in self.stream(key)])

    async def read_range(self, key: str, start: int, length: int) -> bytes:
        """Less than `length` where the object ends before."""
        if start < 0 or length <= 0:
            return b""
        return await on_io(self._backend.read_range, check_key(key), start, length)

    async def stream(self, key: str, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """By ranges: no request lasts longer than a chunk takes, however slow the reader is."""
        size = await self.size(key)
        if size is None:
            raise not_found(self.url, key)
        end = size if length is None else min(size, start + length)
        while start < end:
            data = await self.read_range(key, start, min(CHUNK, end - start))
            if not data:
                raise not_found(self.url, key)
            start += len(data)
            yield data

    async def size(self, key: str) -> int | None:
        """None: there is no such object."""
        return await on_io(self._backend.size, check_key(key))

    async def entry(self, key: str) -> StoredObject | None:
        """As `size`, with what tells one version of it from another."""
        return await on_io(self._backend.entry, check_key(key))

    async def list(self, prefix: str = "", *, unfinished: bool = False) -> AsyncIterator[StoredObject]:
        """Everything below the prefix, which ends at a `/`; in no particular order. `unfinished`: also uploads
        under way and what killed ones left, where the store can tell."""
        entries = self._backend.entries(check_prefix(prefix), unfinished)
        while batch := await on_io(lambda: [*islice(entries, LISTED_AT_ONCE)]):
            for entry in batch:
                yield entry

    async def delete(self, keys: Iterable[str]) -> None:
        """What is not there is fine."""
        await change_on_io(self._backend.delete, [check_key(key) for key in keys])

    async def delete_unfinished(self, keys: Iterable[str]) -> None:
        """What killed uploads under these keys left, where the store can tell. For who alone writes them."""
        await change_on_io(self._backend.delete_unfinished, [check_key(key) for key in keys])

    async def delete_below(self, prefix: str, older_than: datetime | None = None) -> Removed:
        """Everything below the prefix, half-finished uploads too where they can be seen."""
        checked = check_key(prefix.strip("/"))
        return await on_io(self._backend.delete_below, checked, older_than)

    async def sign(self, key: str, expires: timedelta) -> str | None:
        """A link that reads this object for a while, or None: this store has none. It is a secret."""
        return await on_io(self._backend.sign, check_key(key), expires)

    async def needs_lifecycle_rule(self) -> bool:
        """Whether only the bucket's own rules can remove what killed uploads leave."""
        return await on_io(self._backend.needs_lifecycle_rule)

    async def check(self) -> None:
        """Writes, reads, lists and deletes a small object; what is wrong is raised."""
        key = f"_paddock/check-{uuid.uuid4().hex}"
        await self.put(key, b"paddock")
        try:
            read = await self.read(key)
            listed = [entry.key async for entry in self.list("_paddock")]
        finally:
            await self.delete([key])
        if read != b"paddock" or key not in listed:
            raise PermanentRunnerError(
                f"The store {self.url} does not give back what was written to it.",
                code="store_inconsistent",
                hint="Paddock needs a store whose reads and listings show a write at once.",
            )

    async def _whole(self, work: Callable[[threading.Event], None]) -> None:
        """Cancelled, the work is stopped and awaited for a while: it aborts the upload that it began."""
        stop = threading.Event()
        running = asyncio.wrap_future(IO.submit(work, stop))
        try:
            await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()
            running.add_done_callback(_ignore_error)
            await asyncio.wait([running], timeout=PATIENCE)
            raise

    def _upload(self, key: str, path: Path, give: bool, stop: threading.Event) -> None:
        if give and self._backend.link(key, path):
            return
        with path.open("rb", buffering=0) as file:
            source = _until(stop, lambda length: file.read(min(length, PIECE)))
            self._backend.write(key, source, path.stat().st_size)

    def _copy(self, key: str, other: Backend, other_key: str, stop: threading.Event) -> None:
        size = self._backend.size(key)
        if size is None:
            raise not_found(self.url, key)
        if not self._backend.copy(key, other, other_key):
            other.write(other_key, _until(stop, _Ranges(self._backend, key, size)), size)


class _Ranges:
    """Reads an object from its start to its end."""

    def __init__(self, backend: Backend, key: str, size: int) -> None:
        self._backend, self._key, self._size, self._at = backend, key, size, 0

    def __call__(self, length: int) -> bytes:
        length = min(length, self._size - self._at)
        data = self._backend.read_range(self._key, self._at, length) if length > 0 else b""
        self._at += len(data)
        return data


def _until(stop: threading.Event, source: Source) -> Source:
    def read(length: int) -> bytes:
        if stop.is_set():
            raise Stopped
        return source(length)

    return read


def _ignore_error(future: asyncio.Future[None]) -> None:
    """Nobody waits for this error any more, and asyncio should not say so."""
    if not future.cancelled():
        future.exception()


def check_key(key: str) -> str:
    """The key itself, if it means the same in every store and cannot lead out of one."""
    segments = key.split("/")
    if (
        any(part in ("", ".", "..") or len(part.encode("utf-8", "replace")) > MAX_SEGMENT for part in segments)
        or len(key.encode("utf-8", "replace")) > MAX_KEY
        or any(ord(character) < 32 or character in "\\\x7f" or 0xD800 <= ord(character) < 0xE000 for character in key)
        or TEMPORARY.search(key)
    ):
        raise bad_key(key)
    return key


def check_prefix(prefix: str) -> str:
    prefix = prefix.strip("/")
    return check_key(prefix) if prefix else ""


def open_store(url: str, *, environ: Mapping[str, str] | None = None) -> Store:
    """Connects to nothing yet: `Store.check` does."""
    if url == NO_STORE:
        raise ConfigError("There is no object store: set PADDOCK_OBJECT_STORE to a folder or a bucket.")
    parts = urlsplit(url)
    if parts.scheme in ("", "file"):
        # A plain path keeps its `%`, `?` and `#`.
        path = unquote(parts.path) if parts.scheme else url
        if not path or (parts.scheme and (parts.netloc not in ("", "localhost") or parts.query or parts.fragment)):
            raise ConfigError(f"The store {url!r} is no folder. Write /srv/exports or file:///srv/exports.")
        from paddock.storage.local import LocalBackend

        return Store(LocalBackend(Path(path)))
    # Only here: obstore is a large library, and `paddock serve` starts without it.
    from paddock.storage.buckets import bucket_of
    from paddock.storage.remote import RemoteBackend

    return Store(RemoteBackend(bucket_of(url, environ)))


def open_managed(config: Config) -> Store:
    """Where this installation keeps what it makes."""
    return open_store(config.object_store)
