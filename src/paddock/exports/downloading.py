"""Files from the managed store to whoever asked: one with ranges, several as a zip that is never whole anywhere."""

import asyncio
import contextlib
import hashlib
import struct
import time
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from starlette.responses import Response, StreamingResponse

from paddock.config import Config
from paddock.db.pool import UNAVAILABLE, Database, statements
from paddock.exports.plain import Export
from paddock.jobs.errors import InfrastructureError, Refused
from paddock.jobs.model import JsonObject
from paddock.storage import ranges
from paddock.storage.store import open_managed

if TYPE_CHECKING:
    from paddock.storage.drafts import Manifest, Part
    from paddock.storage.store import Store

LINKS_LIVE = timedelta(minutes=15)
# A download that stands still for longer holds up nothing any more.
HELD = timedelta(minutes=2)
RENEWED_AFTER = 30.0
SQL = statements("paddock.exports.sql", "exports.sql")
_ENDING: set[asyncio.Task[None]] = set()
TYPES = {
    "parquet": "application/vnd.apache.parquet",
    "csv": "text/csv; charset=utf-8",
    "jsonl": "application/x-ndjson",
    "gz": "application/gzip",
    "zst": "application/zstd",
}


async def manifest_of(config: Config, export: Export) -> "tuple[Store, Manifest]":
    from paddock.storage.drafts import read_manifest

    if export.status != "completed" or export.manifest is None or export.manifest_sha256 is None:
        raise Refused(
            "export_not_ready",
            f"The export is {export.shown_status}: it has no files.",
            hint="Wait until it completed.",
        )
    store = open_managed(config)
    try:
        return store, await read_manifest(store, export.manifest, export.manifest_sha256)
    except InfrastructureError as problem:
        raise Refused(problem.code, problem.message, hint=problem.hint, status=503) from problem


async def files(config: Config, export: Export, *, sign: bool) -> JsonObject:
    store, manifest = await manifest_of(config, export)
    listed, signed = [], False
    for part in manifest.files:
        url = await store.sign(manifest.key(part), LINKS_LIVE) if sign else None
        signed = signed or url is not None
        listed.append({"name": part.name, "rows": part.rows, "bytes": part.bytes, "sha256": part.sha256, "url": url})
    return {"files": listed, "signed": signed}


@dataclass(frozen=True, slots=True)
class Found:
    """What was asked for: the head of the answer, and its body once that is wanted."""

    status: int
    headers: dict[str, str]
    media_type: str
    body: Callable[[], AsyncIterator[bytes]] | None


async def find(
    config: Config, export: Export, name: str | None, asked: str | None, if_range: str | None = None
) -> Found:
    store, manifest = await manifest_of(config, export)
    if name is None and len(manifest.files) != 1:
        headers = {
            "Content-Disposition": f'attachment; filename="export-{export.id}.zip"',
            "Content-Length": str(zip_size(manifest)),
        }
        return Found(200, headers, "application/zip", lambda: zipped(store, manifest))
    part = next((part for part in manifest.files if name in (None, part.name)), None)
    if part is None:
        raise Refused("not_found", "The export has no such file.", status=404)
    return _one(store, manifest, part, _tag(manifest, part), asked, if_range)


async def download(db: Database, export: Export, found: Found, *, actor: str) -> Response:
    """While it moves it holds up a deletion of the export."""
    if found.body is None:
        return Response(None, found.status, found.headers, found.media_type)
    hold = await db.fetchval(SQL["begin_download"], export.id, actor, HELD)
    if hold is None:
        raise Refused("export_not_ready", "The export is being deleted: it has no files.")
    return StreamingResponse(_held(db, hold, found.body()), found.status, found.headers, found.media_type)


async def _held(db: Database, hold: UUID, body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    renewed = time.monotonic()
    try:
        async for chunk in body:
            yield chunk
            if time.monotonic() - renewed > RENEWED_AFTER:
                await _tell(db, "keep_download", hold, HELD)
                renewed = time.monotonic()
    finally:
        # Whoever went away has this cancelled at every step: it goes on without us.
        ending = asyncio.create_task(_tell(db, "end_download", hold))
        _ENDING.add(ending)
        ending.add_done_callback(_ENDING.discard)
        await asyncio.shield(ending)


async def _tell(db: Database, what: str, *arguments: object) -> None:
    """A database that is away breaks no download: its hold runs out, or is there for a little longer."""
    with contextlib.suppress(*UNAVAILABLE):
        await db.execute(SQL[what], *arguments)


def _tag(manifest: "Manifest", part: "Part") -> str:
    """Its sum. Without one its name will do: no name in the store is ever used twice."""
    return f'"{part.sha256 or hashlib.sha256(manifest.key(part).encode()).hexdigest()}"'


def _one(
    store: "Store", manifest: "Manifest", part: "Part", tag: str, asked: str | None, if_range: str | None
) -> Found:
    suffix = part.name.rpartition(".")[2]
    media_type = TYPES.get(suffix, "application/octet-stream")
    sent = ranges.asked(asked, if_range, tag, part.bytes)
    if sent.status == 416:
        return Found(416, sent.headers, media_type, None)
    headers = {
        "Accept-Ranges": "bytes",
        "ETag": tag,
        "Content-Disposition": f'attachment; filename="{part.name.rpartition("/")[2]}"',
        **sent.headers,
    }
    return Found(sent.status, headers, media_type, lambda: store.stream(manifest.key(part), sent.start, sent.length))


async def zipped(store: "Store", manifest: "Manifest") -> AsyncIterator[bytes]:
    """Stored, not deflated (the files are compressed), with sizes known before and checksums after each file.
    ZIP64 throughout: neither a file nor the whole is limited."""
    central: list[bytes] = []
    offset = 0
    for part in manifest.files:
        name = part.name.encode()
        head = struct.pack("<4sHHHHHIIIHH", b"PK\3\4", 45, 0x0808, 0, 0, 0x21, 0, 0xFFFFFFFF, 0xFFFFFFFF, len(name), 20)
        # With the data descriptor's flag set the sizes here are zero: readers take them from the end.
        extra = struct.pack("<HHQQ", 1, 16, 0, 0)
        yield head + name + extra
        crc = size = 0
        async for chunk in store.stream(manifest.key(part)):
            crc = zlib.crc32(chunk, crc)
            size += len(chunk)
            yield chunk
        yield struct.pack("<4sIQQ", b"PK\7\10", crc, size, size)
        central.append(_central(name, crc, size, offset))
        offset += len(head) + len(name) + len(extra) + size + 24
    for piece in _end(central, offset):
        yield piece


def zip_size(manifest: "Manifest") -> int:
    """To the byte, from what the manifest says: whoever gets less knows it."""
    names = [len(part.name.encode()) for part in manifest.files]
    files = sum(30 + name + 20 + part.bytes + 24 for name, part in zip(names, manifest.files, strict=True))
    return files + sum(46 + name + 28 for name in names) + 56 + 20 + 22


def _central(name: bytes, crc: int, size: int, offset: int) -> bytes:
    extra = struct.pack("<HHQQQ", 1, 24, size, size, offset)
    fixed = struct.pack(
        "<4sHHHHHHIIIHHHHHII", b"PK\1\2", 0x031E, 45, 0x0808, 0, 0, 0x21, crc, 0xFFFFFFFF, 0xFFFFFFFF, len(name),
        len(extra), 0, 0, 0, 0o644 << 16, 0xFFFFFFFF,
    )  # fmt: skip
    return fixed + name + extra


def _end(central: Sequence[bytes], offset: int) -> list[bytes]:
    size, count = sum(map(len, central)), len(central)
    zip64 = struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    locator = struct.pack("<4sIQI", b"PK\6\7", 0, offset + size, 1)
    last = struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    return [*central, zip64, locator, last]
