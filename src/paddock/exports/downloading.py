"""Files from the managed store to whoever asked: one with ranges, several as a zip that is never whole anywhere."""

import asyncio
import hashlib
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import quote
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from paddock.db.pool import Database
from paddock.exports import download_holds
from paddock.exports.download_holds import What
from paddock.jobs.errors import Refused
from paddock.jobs.model import JsonObject
from paddock.storage import ranges, zip64

if TYPE_CHECKING:
    from paddock.storage.store import Store

# What the files in a zip have as their date: the first one there is.
UNDATED = datetime(1980, 1, 1, tzinfo=UTC)
LINKS_LIVE = timedelta(minutes=15)
RENEWED_AFTER = 30.0
# Of a file's name, in characters and in bytes, so that it fits every file system with its ending.
LONGEST_NAME, LONGEST_NAME_BYTES = 80, 200
LONGEST_ENDING = 20
_ENDING: set[asyncio.Task[None]] = set()
TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "jsonl": "application/x-ndjson",
    "gz": "application/gzip",
    "zst": "application/zstd",
}


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file under the name that it is downloaded by. `content` is all of it where it is not in the store."""

    name: str
    key: str
    rows: int | None
    size: int
    sha256: str | None
    content: bytes | None = None


@dataclass(frozen=True, slots=True)
class Downloadable:
    """An export or a snapshot with its files."""

    store: "Store"
    what: What
    id: UUID
    files: Sequence[StoredFile]
    # What it is called; its downloads are named so.
    name: str | None = None


async def listed(found: Downloadable, *, sign: bool = False) -> JsonObject:
    files, signed = [], False
    for file in found.files:
        url = await found.store.sign(file.key, LINKS_LIVE) if sign and file.content is None else None
        signed = signed or url is not None
        files.append({"name": file.name, "rows": file.rows, "bytes": file.size, "sha256": file.sha256, "url": url})
    return {"files": files, "signed": signed}


async def respond(request: Request, db: Database, found: Downloadable, name: str | None, *, actor: str) -> Response:
    """What a GET or a HEAD asks for: one file of it by its name, or all of it."""
    asked = request.headers
    part = find(found, name, asked.get("range"), asked.get("if-range"))
    if request.method == "HEAD":
        part = replace(part, body=None)
    return await send(db, found, part, actor=actor)


@dataclass(frozen=True, slots=True)
class FileAnswer:
    """What was asked for: the head of the answer, and its body once that is wanted."""

    status: int
    headers: dict[str, str]
    media_type: str
    body: Callable[[], AsyncIterator[bytes]] | None


def find(found: Downloadable, name: str | None, asked: str | None, if_range: str | None = None) -> FileAnswer:
    if name is None and len(found.files) != 1:
        headers = {
            "Content-Disposition": attachment(f"{found.name or f'{found.what}-{found.id}'}.zip"),
            "Content-Length": str(zip_size(found)),
        }
        return FileAnswer(200, headers, "application/zip", lambda: zipped(found))
    file = next((file for file in found.files if name in (None, file.name)), None)
    if file is None:
        raise Refused("not_found", f"The {found.what} has no such file.", status=404)
    own = file.name.rpartition("/")[2]
    ending = "".join(own.partition(".")[1:])
    # One file of a snapshot is asked for without reading what the others are: it is a part, though it stands alone here.
    whole = len(found.files) == 1 and (name is None or found.what == "export")
    called = f"{found.name}{ending}" if found.name and whole else own
    return _one(found.store, file, called, asked, if_range)


async def send(db: Database, found: Downloadable, answer: FileAnswer, *, actor: str) -> Response:
    """While it moves it holds up a deletion of what it reads."""
    if answer.body is None:
        return Response(None, answer.status, answer.headers, answer.media_type)
    hold = await download_holds.begin(db, found.what, found.id, actor=actor)
    return StreamingResponse(_held(db, hold, answer.body()), answer.status, answer.headers, answer.media_type)


async def _held(db: Database, hold: UUID, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    renewed = time.monotonic()
    try:
        async for chunk in body:
            yield chunk
            if time.monotonic() - renewed > RENEWED_AFTER:
                await download_holds.keep(db, hold)
                renewed = time.monotonic()
    finally:
        # Whoever went away has this cancelled at every step: it goes on without us.
        ending = asyncio.create_task(download_holds.end(db, hold))
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        await asyncio.shield(ending)


def attachment(name: str) -> str:
    """A header that names the file, for old clients in ASCII too. What a folder's name may not hold becomes _."""
    safe = "".join("_" if char in '/\\:*?"<>|%' or not char.isprintable() else char for char in name)
    stem, dot, ending = safe.rpartition(".")
    if not dot or len(ending.encode()) > LONGEST_ENDING:
        stem, dot, ending = safe, "", ""
    stem = stem.strip(". ")[:LONGEST_NAME].encode()[:LONGEST_NAME_BYTES].decode(errors="ignore")
    whole = f"{stem or 'download'}{dot}{ending}"
    plain = whole.encode("ascii", "replace").decode().replace("?", "_")
    more = "" if plain == whole else f"; filename*=UTF-8''{quote(whole, safe='')}"
    return f'attachment; filename="{plain}"{more}'


def _tag(file: StoredFile) -> str:
    """Its sum. Without one its name will do: no name in the store is ever used twice."""
    return f'"{file.sha256 or hashlib.sha256(file.key.encode()).hexdigest()}"'


def _one(store: "Store", file: StoredFile, called: str, asked: str | None, if_range: str | None) -> FileAnswer:
    suffix = file.name.rpartition(".")[2]
    media_type = TYPES.get(suffix, "application/octet-stream")
    tag = _tag(file)
    sent = ranges.requested_range(asked, if_range, tag, file.size)
    if sent.status == 416:
        return FileAnswer(416, sent.headers, media_type, None)
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Content-Disposition": attachment(called),
        **sent.headers,
    }
    return FileAnswer(sent.status, headers, media_type, lambda: _read(store, file, sent.start, sent.length))


def _read(store: "Store", file: StoredFile, start: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
    if file.content is None:
        return store.stream(file.key, start, length)
    return _one_chunk(file.content[start : None if length is None else start + length])


async def _one_chunk(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def zipped(found: Downloadable) -> AsyncIterator[bytes]:
    """Stored, not deflated: the files are compressed."""
    entries: list[tuple[str, zip64.ZipEntry]] = []
    offset = 0
    for file in found.files:
        head = zip64.head(file.name, zip64.STORED, UNDATED)
        yield head
        crc = size = 0
        async for chunk in _read(found.store, file):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
            yield chunk
        tail = zip64.tail(crc, size, size)
        yield tail
        entries.append((file.name, zip64.ZipEntry(crc, size, size, offset)))
        offset += len(head) + size + len(tail)
    yield zip64.directory(entries, offset, zip64.STORED, UNDATED)


def zip_size(found: Downloadable) -> int:
    """To the byte, from what the manifests say: whoever gets less knows it."""
    return zip64.size_of([(file.name, file.size) for file in found.files])
