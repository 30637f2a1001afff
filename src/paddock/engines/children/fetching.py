"""Brings the objects that a query names from remote sources to this machine, before the query runs.

A query's process has no network and no credentials, so its parent fetches: `lake/orders/*.parquet` is everything of the
remote source `lake` that the pattern matches. The files lie in a folder of the query's own, which its process can only
read; they go with it, and those of a killed worker go when the next one starts.

Each file is one version of its object, or the job tries again. To describe a query, the footers of some Parquet files
and the names of the others are enough: these are there as empty files, which no reader takes for the whole.
"""

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from paddock.engines.children.matching import MOST_LISTED, check_count, matching
from paddock.engines.engine import Finding, Tell
from paddock.engines.settings import RemoteSettings
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.storage.failures import NO_ROOM, disk_full
from paddock.storage.store import CHUNK, Store, StoredObject, check_key, open_store
from paddock.storage.threads import change_on_io
from paddock.storage.together import together

AT_ONCE = 4
MAGIC = b"PAR1"
# Footers of usual files are smaller, so one read does; of a file with a larger one than the most, all is fetched.
TAIL, MOST_FOOTER = 64 << 10, 16 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """Paths, by what is needed of their files: all of them; the columns of the first and the names of the others; only
    their names."""

    whole: Sequence[str]
    columns: Sequence[str] = ()
    names: Sequence[str] = ()


class Remotes:
    """The remote sources of one engine, and what of its disk room fetched files take now."""

    def __init__(self, sources: Mapping[str, RemoteSettings], most: int) -> None:
        self._sources = sources
        self._most = most
        self._used = 0
        # Each holds a chunk in memory.
        self.places = asyncio.Semaphore(AT_ONCE)

    @asynccontextmanager
    async def folder(self, parent: Path) -> AsyncIterator["Fetched"]:
        """For one query. Gone afterwards, with the room that its files took."""
        fetched = Fetched(self, Path(await asyncio.to_thread(tempfile.mkdtemp, dir=parent)))
        try:
            yield fetched
        finally:
            await asyncio.shield(asyncio.to_thread(shutil.rmtree, fetched.path, ignore_errors=True))
            self._used -= fetched.bytes

    def open(self, name: str) -> Store:
        """Anew each time: a mounted credential may have changed."""
        source = self._sources[name]
        return open_store(source.url, environ=source.environ(name))

    def take(self, size: int) -> None:
        if size > self._most:
            raise PermanentRunnerError(
                f"The query reads {size:,} bytes of remote sources; at most {self._most:,} are fetched.",
                code="remote_too_large",
                hint="Name fewer files, or raise fetch_bytes of the engine.",
            )
        if self._used + size > self._most:
            raise disk_full(
                f"for {size:,} bytes of remote sources: other queries hold {self._used:,} of {self._most:,}"
            )
        self._used += size

    async def files(self, name: str, suffixes: tuple[str, ...], most: int) -> Sequence[str]:
        """As a query would name them."""
        found: list[str] = []
        listed = 0
        async for entry in self.open(name).list():
            listed += 1
            if entry.key.lower().endswith(suffixes):
                found.append(f"{name}/{entry.key}")
            if len(found) == most or listed == MOST_LISTED:
                break
        return sorted(found)

    async def check(self) -> Sequence[Finding]:
        return [await self._check(name) for name in self._sources]

    async def _check(self, name: str) -> Finding:
        try:
            with refusals_of(name):
                store = self.open(name)
                async for _ in store.list():
                    break
        except InfrastructureError as problem:
            return Finding(f"remote {name}", False, problem.message, problem.hint)
        return Finding(f"remote {name}", True, f"{store.url} can be listed")


class Fetched:
    def __init__(self, remotes: Remotes, path: Path) -> None:
        self.path = path
        self.bytes = 0
        self._remotes = remotes
        self._stores: dict[str, Store] = {}

    async def bring(self, wanted: Wanted, tell: Tell) -> None:
        tell({"phase": "listing remote files"})
        whole = await self._list_files(wanted.whole)
        names = await self._list_files(wanted.names)
        footers: set[tuple[str, str]] = set()
        for path in wanted.columns:
            found = await self._list_files([path])
            # The one that DuckDB looks into. Should it look into another, it asks for all.
            footers.add(min(found, key=lambda file: file[1].encode()))
            names |= found
        check_count(len({*whole, *names}), "The query names")
        for file in footers - {*whole}:
            if not await self._bring_footer(*file, names[file]):
                whole[file] = names[file]
        for name, key in {*names} - footers - {*whole}:
            await self._keep(name, key, 0, b"")
        await self._bring_whole(whole, tell)

    async def _list_files(self, paths: Iterable[str]) -> dict[tuple[str, str], StoredObject]:
        found: dict[tuple[str, str], StoredObject] = {}
        for path in paths:
            name = path.partition("/")[0]
            with refusals_of(name):
                store = self._stores.setdefault(name, self._remotes.open(name))
                found |= {(name, entry.key): entry for entry in await matching(store, path)}
            check_count(len(found), "The query names")
        return found

    def _take(self, size: int) -> None:
        self._remotes.take(size)
        self.bytes += size

    async def _bring_whole(self, found: Mapping[tuple[str, str], StoredObject], tell: Tell) -> None:
        size = sum(entry.size for entry in found.values())
        self._take(size)
        free = (await asyncio.to_thread(shutil.disk_usage, self.path)).free
        if size > free:
            raise disk_full(f"for {size:,} bytes of remote sources: the disk for them has {free:,} free")
        progress = Arriving(tell, size, len(found))
        await together(self._bring_one(*file, entry, progress) for file, entry in found.items())

    async def _bring_one(self, name: str, key: str, entry: StoredObject, progress: "Arriving") -> None:
        async with self._remotes.places:
            with refusals_of(name), _translated_disk_errors(self._stores[name], key):
                await _fetch(self._stores[name], entry, self.path / name / key, progress)

    async def _bring_footer(self, name: str, key: str, entry: StoredObject) -> bool:
        """At its place in a file that has holes elsewhere. False: there is none, or it is not worth it."""
        if entry.size <= TAIL:
            return False
        store = self._stores[name]
        with refusals_of(name):
            tail = await _end_of(store, entry, TAIL)
            length = int.from_bytes(tail[-8:-4], "little") + 8
            if tail[-4:] != MAGIC or length > min(MOST_FOOTER, entry.size):
                return False
            if length > len(tail):
                tail = await _end_of(store, entry, length)
        self._take(len(tail))
        await self._keep(name, key, entry.size - len(tail), tail)
        return True

    async def _keep(self, name: str, key: str, start: int, data: bytes) -> None:
        def keep() -> None:
            file = _new_file(self.path / name / check_key(key))
            try:
                os.lseek(file, start, os.SEEK_SET)
                _write(file, data)
            finally:
                os.close(file)

        with _translated_disk_errors(self._stores[name], key):
            await change_on_io(keep)


@dataclass(slots=True)
class Arriving:
    """Tells a person how much of it is here."""

    tell: Tell
    total_bytes: int
    total_files: int
    bytes: int = 0
    files: int = 0
    began: float = field(default_factory=time.monotonic)

    def arrived(self, size: int, *, whole: bool = False) -> None:
        self.bytes += size
        self.files += whole
        report = {
            "phase": "fetching",
            "fetched_bytes": self.bytes,
            "total_bytes": self.total_bytes,
            "fetched_files": self.files,
            "total_files": self.total_files,
        }
        spent = time.monotonic() - self.began
        if self.bytes and self.total_bytes:
            report["percent"] = round(100 * self.bytes / self.total_bytes, 1)
            if spent > 1:
                report["eta_seconds"] = round(spent * (self.total_bytes - self.bytes) / self.bytes)
        self.tell(report)


async def _end_of(store: Store, entry: StoredObject, length: int) -> bytes:
    # One byte more: it may have grown.
    data = await store.read_range(entry.key, entry.size - length, length + 1)
    if len(data) != length:
        raise _changed(store, entry)
    return data


async def _fetch(store: Store, entry: StoredObject, path: Path, progress: Arriving) -> None:
    """Never more than was said to come, and of one version: a single request gives one, several are watched."""
    check_key(entry.key)
    before = await store.entry(entry.key) if entry.size > CHUNK else None
    file = await asyncio.to_thread(_new_file, path)
    try:
        done = 0
        progress.arrived(0)
        while done < entry.size:
            length = min(CHUNK, entry.size - done)
            # One byte more at the end: it may have grown.
            data = await store.read_range(entry.key, done, length + (done + length == entry.size))
            if len(data) != length:
                raise _changed(store, entry)
            await change_on_io(_write, file, data)
            done += length
            progress.arrived(length)
    finally:
        os.close(file)
    if before is not None and (await store.entry(entry.key)) != before:
        raise _changed(store, entry)
    progress.arrived(0, whole=True)


@contextmanager
def refusals_of(name: str) -> Iterator[None]:
    """What Paddock's own store wants of its credentials is not what a remote source does."""
    try:
        yield
    except PermanentRunnerError as problem:
        if problem.code != "store_denied":
            raise
        hint = f"Check the credentials of the remote source '{name}', and that they may read and list there."
        raise PermanentRunnerError(problem.message, code=problem.code, hint=hint) from None


@contextmanager
def _translated_disk_errors(store: Store, key: str) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        if problem.errno in NO_ROOM:
            raise disk_full("on the disk for fetched files") from None
        raise PermanentRunnerError(
            f"'{key}' of {store.url} cannot be kept as a file: {problem.strerror}.", code="remote_not_kept"
        ) from None


def _changed(store: Store, entry: StoredObject) -> TransientResourceError:
    return TransientResourceError(
        f"'{entry.key}' of {store.url} was changed while it was fetched.",
        code="remote_changed",
        hint="Paddock fetches it again. Write new objects under new names to be read in peace.",
    )


def _new_file(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Its name or its footer alone may have been there before.
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
