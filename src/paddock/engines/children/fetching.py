"""Brings the objects that a query names from remote sources to this machine, before the query runs.

A query's process has no network and no credentials, so its parent fetches: `lake/orders/*.parquet` is everything of the
remote source `lake` that the pattern matches. The files lie in a folder of the query's own, which its process can only
read; they go with it, and those of a killed worker go when the next one starts.

Which files a pattern means is decided by DuckDB when it reads them: a few more may be fetched here, never fewer. Each
file is one version of its object, or the job tries again.
"""

import asyncio
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from paddock.engines.engine import Finding, QueryRefused
from paddock.engines.settings import RemoteSettings
from paddock.jobs.errors import InfrastructureError, PermanentRunnerError, TransientResourceError
from paddock.storage.failures import NO_ROOM, disk_full
from paddock.storage.store import CHUNK, Entry, Store, check_key, open_store
from paddock.storage.threads import change_on_io

AT_ONCE = 4
MOST_FILES = 10_000
GLOB = re.compile(r"[*?\[]")
PARTS = re.compile(r"\*\*|\*|\?|\[[^\]/]*\]|\[.*")
MEANINGS = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


class Remotes:
    """The remote sources of one engine, and what of its disk room fetched files take now."""

    def __init__(self, sources: Mapping[str, RemoteSettings], most: int) -> None:
        self._sources = sources
        self._most = most
        self._used = 0
        # Each holds a chunk in memory.
        self._places = asyncio.Semaphore(AT_ONCE)

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

    async def fetch(self, store: Store, entry: Entry, path: Path) -> None:
        async with self._places:
            await _fetch(store, entry, path)

    async def files(self, name: str, suffixes: tuple[str, ...], most: int) -> Sequence[str]:
        """As a query would name them."""
        found: list[str] = []
        async for entry in self.open(name).list():
            if entry.key.lower().endswith(suffixes):
                found.append(f"{name}/{entry.key}")
            if len(found) == most:
                break
        return sorted(found)

    async def check(self) -> Sequence[Finding]:
        return [await self._check(name) for name in self._sources]

    async def _check(self, name: str) -> Finding:
        try:
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

    async def bring(self, wanted: Iterable[str]) -> None:
        """Every object that these paths name, whole. A path is the name of a source, a slash, and a key or a pattern."""
        found: dict[tuple[str, str], Entry] = {}
        stores: dict[str, Store] = {}
        for path in dict.fromkeys(wanted):
            name, _, pattern = path.partition("/")
            store = stores.setdefault(name, self._remotes.open(name))
            for entry in await _matching(store, path, pattern):
                found[name, entry.key] = entry
        size = sum(entry.size for entry in found.values())
        self._remotes.take(size)
        self.bytes += size
        tasks = [
            asyncio.create_task(self._remotes.fetch(stores[name], entry, self.path / name / entry.key))
            for (name, _), entry in found.items()
        ]
        try:
            await asyncio.gather(*tasks)
        finally:
            # No TaskGroup: it would wrap what the store said. All have ended before their folder goes.
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _matching(store: Store, path: str, pattern: str) -> Sequence[Entry]:
    if any(part in ("", ".", "..") for part in pattern.split("/")):
        raise QueryRefused(
            f"'{path}' is no path in a remote source.", code="path_denied", hint="Its folders have names, not '..'."
        )
    if GLOB.search(pattern) is None:
        entry = await store.entry(pattern)
        found = [] if entry is None else [entry]
    else:
        found = await _listed(store, path, pattern)
    if not found:
        raise QueryRefused(f"There is nothing at '{path}'.", code="remote_not_found")
    return found


async def _listed(store: Store, path: str, pattern: str) -> list[Entry]:
    folder = GLOB.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    matches = re.compile(_regular(pattern), re.DOTALL).fullmatch
    found: list[Entry] = []
    async for entry in store.list(folder):
        # A name may hold a bracket of its own, and DuckDB then reads that one file.
        if matches(entry.key) is None and entry.key != pattern:
            continue
        if len(found) == MOST_FILES:
            raise PermanentRunnerError(
                f"'{path}' names more than {MOST_FILES:,} files.", code="remote_too_large", hint="Name fewer."
            )
        found.append(entry)
    return found


def _regular(pattern: str) -> str:
    """What matches at least all that DuckDB's pattern does."""
    at, parts = 0, []
    for found in PARTS.finditer(pattern):
        parts += [re.escape(pattern[at : found.start()]), _meaning(found[0])]
        at = found.end()
    return "".join([*parts, re.escape(pattern[at:])]).replace(".*/", "(?:.*/)?")


def _meaning(part: str) -> str:
    if part.startswith("["):
        return "[^/]" if part.endswith("]") else ".*"
    return MEANINGS[part]


async def _fetch(store: Store, entry: Entry, path: Path) -> None:
    """Never more than was said to come, and of one version: a single request gives one, several are watched."""
    check_key(entry.key)
    before = await store.entry(entry.key) if entry.size > CHUNK else None
    try:
        file = await asyncio.to_thread(_new_file, path)
        try:
            done = 0
            while done < entry.size:
                length = min(CHUNK, entry.size - done)
                # One byte more at the end: it may have grown.
                data = await store.read_range(entry.key, done, length + (done + length == entry.size))
                if len(data) != length:
                    raise _changed(store, entry)
                await change_on_io(_write, file, data)
                done += length
        finally:
            os.close(file)
    except OSError as problem:
        if problem.errno in NO_ROOM:
            raise disk_full("on the disk for fetched files") from None
        raise PermanentRunnerError(
            f"'{entry.key}' of {store.url} cannot be kept as a file: {problem.strerror}.", code="remote_not_kept"
        ) from None
    if before is not None and (await store.entry(entry.key)) != before:
        raise _changed(store, entry)


def _changed(store: Store, entry: Entry) -> TransientResourceError:
    return TransientResourceError(
        f"'{entry.key}' of {store.url} was changed while it was fetched.",
        code="remote_changed",
        hint="Paddock fetches it again. Write new objects under new names to be read in peace.",
    )


def _new_file(path: Path) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
