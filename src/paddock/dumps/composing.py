"""From a frozen database to the bytes of its dump: heads, rows and tails, JSON's brackets, zip entries, frames.

A position says where a chunk begins, and with the frozen state decides about all of its bytes. It carries what the end
of the file needs to know of its beginning: rows of each table, and the entries of a zip.
"""

import json
import zlib
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from paddock.dumps import compressing, zipping
from paddock.dumps.digesting import PartDigest, chained
from paddock.dumps.model import CHUNK_BYTES, COMPRESSED, MEDIA_TYPES, RENDERER, DumpOptions, Format, extension
from paddock.dumps.source import Frozen, HasFile, HasUnreadable, Rows, Section, Table
from paddock.jobs.model import JsonObject
from paddock.storage.threads import on_cpu, on_io

# Small tables share a chunk until it is so large: a frame, a deflate block and a save for each would be waste.
ENOUGH = 256 << 10
TRAILER = b"-- paddock: "
# Reports are short. Bytes of JSON: of more tables only how many.
MOST_COUNTS = 4 << 10

Position = JsonObject


@dataclass(frozen=True, slots=True)
class Written:
    """What a file has before a chunk: so many bytes, and the digest over them in parts of one size."""

    part_size: int = CHUNK_BYTES
    size: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """`next` is None at the end of the file; `at` is where it leads all the same, to tell people of."""

    data: bytes
    next: Position | None
    at: Position


@dataclass(frozen=True, slots=True)
class _Piece:
    section: Section
    # Between the rows of two chunks.
    between: bytes = b""
    # Its entry in a zip.
    entry: str | None = None


@dataclass(frozen=True, slots=True)
class _Step:
    """Some bytes, how many they were before they were packed, where they lead, and whether that is the end."""

    data: bytes
    plain: int
    to: Position
    ended: bool


class Composer:
    def __init__(
        self,
        frozen: Frozen,
        format: Format,
        options: DumpOptions,
        *,
        single: bool = False,
        about: JsonObject | None = None,
    ) -> None:
        self.frozen = frozen
        self.format = format
        self.about = about or {}
        self.single = single or len(frozen.tables) == 1
        self.zipped = format == "csv" and not self.single
        # A zip and PostgreSQL's own format are compressed by themselves.
        self.compress = "none" if self.zipped or format == "custom" else options.compress
        self.tables = frozen.tables
        self._by_name = {table.name: table for table in frozen.tables}
        self._pieces = self._pieces_of_format()
        # Whether one section stands for all tables.
        self._streamed = any(
            not self._is_requested(piece.section.table) for piece in self._pieces if piece.section.table
        )

    @property
    def first(self) -> Position:
        return {"section": 0, "place": None, "counts": {}}

    @property
    def extension(self) -> str:
        return extension(self.format, zipped=self.zipped, compress=self.compress)

    @property
    def media_type(self) -> str:
        if self.compress != "none":
            return MEDIA_TYPES[COMPRESSED[self.compress]]
        return MEDIA_TYPES[self.extension]

    @property
    def identity(self) -> str:
        """A draft that was begun under another is begun anew."""
        how = compressing.version("gzip" if self.zipped else self.compress)
        return f"{RENDERER}/{self.frozen.identity}/{how}/{self.extension}"

    async def render(self, position: Position, written: Written) -> Chunk:
        """The chunk that begins here: a pure function of the frozen state and its arguments."""
        data, at, ended = b"", position, False
        plain = 0
        while not ended and plain < ENOUGH and not (data and self._at_trailer(at)):
            step = await self._step(at, written)
            data, plain, at, ended = data + step.data, plain + step.plain, step.to, step.ended
        if self.compress != "none":
            data = await on_cpu(compressing.compressed, data, self.compress)
        return Chunk(data, None if ended else at, at)

    async def chunks(self) -> AsyncIterator[bytes]:
        """All of it, for who needs no parts."""
        position: Position | None = self.first
        written, digest = Written(), PartDigest(CHUNK_BYTES)
        while position is not None:
            chunk = await self.render(position, written)
            yield chunk.data
            await on_io(digest.add, chunk.data)
            position, written = chunk.next, Written(size=written.size + len(chunk.data), digest=digest.value)

    def progress(self, at: Position) -> JsonObject:
        """For people. A source that writes all tables in one stream is where the last rows came from."""
        counts: dict[str, int] = at["counts"]
        if self._streamed:
            names = [*counts]
        else:
            sections = (piece.section.table for piece in self._pieces[: at["section"] + 1])
            names = [table.name for table in sections if table is not None and self._is_requested(table)]
        ended = at["section"] == len(self._pieces)
        told = {name: counts.get(name, 0) for name in names}
        return {
            "tables_done": len(self.tables) if ended else max(0, len(names) - 1),
            "tables_total": len(self.tables),
            "table": None if ended else next(reversed(told), None),
            **({"rows": sum(told.values())} if len(self.rows(at)) == len(self.tables) else {}),
            **({"counts": told} if len(_ascii(told)) <= MOST_COUNTS else {}),
            **self._share(at),
        }

    def rows(self, at: Position) -> dict[str, int]:
        """Of each table that was asked for, at the end; those of shadow tables are nobody's. A table that is copied in
        its file need not be counted: then it is not here."""
        known = [table.name for table in self.tables if self.format != "sqlite" or table.name in at["counts"]]
        return {name: at["counts"].get(name, 0) for name in known}

    def _is_requested(self, table: Table) -> bool:
        return self._by_name.get(table.name) == table

    def _share(self, at: Position) -> JsonObject:
        if self.format == "sqlite":
            done, total = at["place"] or 0, self.frozen.size
        else:
            done, total = sum(at["counts"].values()), sum(table.rows or 0 for table in self.tables)
        return {"percent": min(99.9, round(100 * done / total, 1))} if total else {}

    def _pieces_of_format(self) -> Sequence[_Piece]:
        if self.format == "sql" or self.format == "custom":
            return [_Piece(section) for section in self.frozen.sections()]
        if self.format == "sqlite":
            # Each is counted, and adds nothing to the file.
            return [_Piece(Section(b"", table)) for table in self.tables]
        if self.format == "json":
            return _json(self.tables, self.single)
        entries = zipping.names([table.name for table in self.tables])
        return [
            _Piece(Section(csv_head(table), table), entry=entry if self.zipped else None)
            for table, entry in zip(self.tables, entries, strict=True)
        ]

    async def _step(self, at: Position, written: Written) -> _Step:
        if self.format == "sqlite" and (at["place"] is not None or at["section"] == len(self._pieces)):
            return await self._copied(at)
        if at["section"] == len(self._pieces):
            return _Step(self._end(at, written), 0, at, ended=True)
        piece = self._pieces[at["section"]]
        table = piece.section.table
        rows = Rows(b"", None) if table is None else await self.frozen.rows(table, self.format, at["place"])
        data = b"" if at["place"] is not None else piece.section.head
        if rows.data and rows.begins and table is not None and at["counts"].get(table.name):
            data += piece.between
        data += rows.data
        if rows.next is None:
            data += piece.section.tail
        after, plain = self._after(at, rows), len(data)
        if piece.entry is not None:
            date, whole = self.frozen.point_in_time, rows.next is None
            data, after = await on_cpu(_zipped, data, piece.entry, at, after, whole, date)
        return _Step(data, plain, after, after["section"] == len(self._pieces) and not self._has_end)

    def _at_trailer(self, at: Position) -> bool:
        """It begins a chunk, and so a frame of its own: its digest is of all bytes of the file before that."""
        return self.format == "sql" and at["section"] == len(self._pieces)

    @property
    def _has_end(self) -> bool:
        return self.format in ("sql", "sqlite") or self.zipped

    def _after(self, at: Position, rows: Rows) -> Position:
        counts = dict(at["counts"])
        for name, count in rows.counts.items():
            # The one that grew is the last: `progress` looks for it.
            counts[name] = counts.pop(name, 0) + count
        ended = rows.next is None
        return {**at, "section": at["section"] + ended, "place": rows.next, "counts": counts}

    def _end(self, at: Position, written: Written) -> bytes:
        facts = {
            **self.about,
            "pointInTime": stated(self.frozen.point_in_time),
            "tables": self.rows(at),
        }
        if isinstance(self.frozen, HasUnreadable) and self.frozen.unreadable:
            facts["unreadable"] = list(self.frozen.unreadable)
        if not self.zipped:
            facts |= {"compress": self.compress, "bytes": written.size, "partSize": written.part_size}
            return trailer(facts, written.digest)
        entries = [piece.entry or "" for piece in self._pieces]
        facts["files"] = {entry: table.name for entry, table in zip(entries, self.tables, strict=True)}
        return _zip_end(facts, entries, at.get("zip", _ZIP), self.frozen.point_in_time)

    async def _copied(self, at: Position) -> _Step:
        """The copy itself, as it lies there."""
        assert isinstance(self.frozen, HasFile)
        offset = at["place"] or 0
        data, size = await on_io(_read, self.frozen.file, offset)
        end = offset + len(data)
        return _Step(data, len(data), {**at, "place": end}, end >= size)


def _read(path: Path, offset: int) -> tuple[bytes, int]:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(offset)
        return file.read(CHUNK_BYTES), size


def _json(tables: Sequence[Table], single: bool) -> list[_Piece]:
    if single:
        return [_Piece(Section(b"[\n", table, b"\n]\n"), b",\n") for table in tables]
    if not tables:
        return [_Piece(Section(b"{}\n"))]
    pieces = []
    for number, table in enumerate(tables):
        before, after = b",\n" if number else b"{\n", b"\n]" if number + 1 < len(tables) else b"\n]\n}\n"
        pieces.append(_Piece(Section(before + _ascii(table.name) + b": [\n", table, after), b",\n"))
    return pieces


def csv_head(table: Table) -> bytes:
    return b",".join(_cell(column) for column in table.columns) + b"\r\n"


def _cell(text: str) -> bytes:
    plain = text.encode("utf-8", "surrogateescape")
    if plain and not any(byte in plain for byte in b',"\r\n'):
        return plain
    return b'"' + plain.replace(b'"', b'""') + b'"'


_NOTHING_YET: JsonObject = {"crc": 0, "packed": 0, "size": 0}
# Bytes of the file before the entry that is open, the entries that are closed, and what the open one has so far.
_ZIP: JsonObject = {"offset": 0, "closed": [], "open": _NOTHING_YET}


def _zipped(
    data: bytes, entry: str, at: Position, after: Position, whole: bool, date: datetime
) -> tuple[bytes, Position]:
    state = at.get("zip", _ZIP)
    crc, packed, size = (state["open"][name] for name in ("crc", "packed", "size"))
    head = zipping.head(entry, date) if at["place"] is None else b""
    body = zipping.piece(data) if data else b""
    crc, packed, size = zlib.crc32(data, crc), packed + len(body), size + len(data)
    if not whole:
        return head + body, {**after, "zip": {**state, "open": {"crc": crc, "packed": packed, "size": size}}}
    packed += len(zipping.END_OF_ENTRY)
    tail = zipping.tail(crc, packed, size)
    offset = state["offset"]
    length = len(zipping.head(entry, date)) + packed + len(tail)
    closed = [*state["closed"], {"crc": crc, "packed": packed, "size": size, "offset": offset}]
    ended = {"offset": offset + length, "closed": closed, "open": _NOTHING_YET}
    return head + body + zipping.END_OF_ENTRY + tail, {**after, "zip": ended}


def _zip_end(facts: JsonObject, names: Sequence[str], state: JsonObject, date: datetime) -> bytes:
    content = _ascii(facts, indent=2)
    body = zipping.piece(content) + zipping.END_OF_ENTRY
    crc, offset = zlib.crc32(content), state["offset"]
    head, tail = zipping.head("manifest.json", date), zipping.tail(crc, len(body), len(content))
    entries = [(name, zipping.ZipEntry(**known)) for name, known in zip(names, state["closed"], strict=True)]
    entries.append(("manifest.json", zipping.ZipEntry(crc, len(body), len(content), offset)))
    whole = head + body + tail
    return whole + zipping.directory(entries, offset + len(whole), date)


def trailer(facts: JsonObject, before: str) -> bytes:
    """The last line of a dump in SQL. Its digest is of all bytes before it and of what else it tells: it comes last.
    No byte above 127 and no line end: a comment in any encoding."""
    return TRAILER + _ascii({**facts, "digest": chained(before, _ascii(facts))}) + b"\n"


def _ascii(facts: Any, indent: int | None = None) -> bytes:
    """Not by orjson: a table's name may be what is no Unicode."""
    return json.dumps(facts, indent=indent).encode()


def stated(at: datetime) -> str:
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
