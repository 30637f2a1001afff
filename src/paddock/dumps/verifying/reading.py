"""A file as a stream of what it was before it was compressed, and what its first and last bytes tell of it."""

import gzip
import io
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from paddock.dumps.composing import TRAILER
from paddock.dumps.composing import trailer as trailer_line
from paddock.dumps.digesting import chain_of
from paddock.dumps.verifying.findings import NotWhole, Told
from paddock.jobs.model import JsonObject

PIECE = 1 << 20
HEAD = 64 << 10
# A comment that tells of so many tables is none of ours.
LONGEST_TRAILER = 64 << 20

Packing = Literal["none", "gzip", "zstd"]
PACKINGS: dict[bytes, Packing] = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
ENDINGS: dict[str, Packing] = {".gz": "gzip", ".zst": "zstd"}
CUT = "Download it again, or ask for a new dump."


class Counted(io.RawIOBase):
    """The file itself; tells how far it was read."""

    def __init__(self, file: BinaryIO, size: int, told: Told) -> None:
        self._file, self._size, self._told = file, size, told
        self._done = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._file.readinto(buffer)  # type: ignore[attr-defined]  # every file of ours has it
        self._done += read
        self._told(self._done, self._size)
        return int(read)


@dataclass(frozen=True, slots=True)
class Trailer:
    """What the last line of a dump in SQL tells."""

    tables: dict[str, int]
    # As it was written: how it was compressed, and how many bytes of the file there are before this line.
    packing: str
    size: int
    part_size: int
    # The line itself, to be made again from what it tells.
    facts: JsonObject
    line: bytes
    point_in_time: str | None
    source: str | None


@dataclass(frozen=True, slots=True)
class Record:
    """What is known of a dump beside its file: the rows of each table, and the digest over all bytes."""

    counts: Mapping[str, int]
    file_name: str
    part_size: int
    digest: str


@dataclass(frozen=True, slots=True)
class DumpFile:
    path: Path
    size: int
    packing: Packing

    @contextmanager
    def plain(self, told: Told = lambda done, total: None) -> Iterator[BinaryIO]:
        """Before it was compressed."""
        with self.path.open("rb") as file:
            raw = io.BufferedReader(Counted(file, self.size, told), PIECE)
            if self.packing == "none":
                yield raw
                return
            try:
                yield _unpacked(raw, self.packing)
            except (EOFError, zlib.error, gzip.BadGzipFile, _Unpacking) as problem:
                raise NotWhole(
                    f"{self.path} is cut short or changed: it cannot be decompressed ({problem}).", hint=CUT
                ) from None

    def head(self) -> bytes:
        with self.plain() as stream:
            return stream.read(HEAD)

    def trailer(self) -> Trailer:
        """Its absence is what tells that a file is cut short."""
        try:
            line = self._last_line()
            found = json.loads(line.removeprefix(TRAILER)) if _is_trailer(line) else None
            if found is not None:
                found.pop("digest")
                return Trailer(
                    {str(table): int(rows) for table, rows in found["tables"].items()},
                    str(found["compress"]),
                    int(found["bytes"]),
                    int(found["partSize"]),
                    found,
                    line,
                    found.get("pointInTime"),
                    found.get("source"),
                )
        except (ValueError, KeyError, TypeError, AttributeError):
            pass
        raise NotWhole(
            f"{self.path} does not end as a dump of Paddock ends: it is cut short, or somebody else wrote it.", hint=CUT
        )

    def check_digest(self, trailer: Trailer, told: Told) -> bool:
        """Over the bytes as they lie in the file: compressed, if it is. False: somebody compressed or decompressed it
        since, so that nobody knows what its bytes should be."""
        if self.packing != trailer.packing:
            return False
        if trailer.part_size <= 0 or not 0 <= trailer.size < self.size:
            raise NotWhole(f"{self.path} is shorter than its last line says.", hint=CUT)
        with self.path.open("rb") as file:
            raw = cast(BinaryIO, io.BufferedReader(Counted(file, self.size, told), PIECE))
            before = chain_of(raw, trailer.part_size, trailer.size)
            if trailer_line(trailer.facts, before) != trailer.line or not self._ends_with(trailer, raw):
                raise self._changed()
        return True

    def check_record(self, record: Record, told: Told) -> bool:
        """As `check_digest` does it, of the whole file."""
        if self.packing != ENDINGS.get(Path(record.file_name).suffix, "none"):
            return False
        with self.path.open("rb") as file:
            raw = cast(BinaryIO, io.BufferedReader(Counted(file, self.size, told), PIECE))
            if chain_of(raw, record.part_size) != record.digest:
                raise self._changed()
        return True

    def _changed(self) -> NotWhole:
        return NotWhole(f"{self.path} was changed: its bytes are not those that were written.", hint=CUT)

    def _ends_with(self, trailer: Trailer, rest: BinaryIO) -> bool:
        """Whether there is nothing else behind those bytes than the last line."""
        if self.packing == "none":
            return self.size - trailer.size == len(trailer.line)
        return _unpacked(rest, self.packing).read(len(trailer.line) + 1) == trailer.line

    def _last_line(self) -> bytes:
        if self.packing == "none":
            return self._last_line_of_plain()
        tail = b""
        with self.plain() as stream:
            while piece := stream.read(PIECE):
                tail += piece
                tail = tail[_last_start(tail) :][-LONGEST_TRAILER:]
        return tail

    def _last_line_of_plain(self) -> bytes:
        with self.path.open("rb") as file:
            length = PIECE
            while True:
                file.seek(max(0, self.size - length))
                tail = file.read()
                start = _last_start(tail)
                if start or length >= min(self.size, LONGEST_TRAILER):
                    return tail[start:]
                length *= 8


class _Unpacking(Exception):
    pass


class _Zstd(io.RawIOBase):
    def __init__(self, raw: BinaryIO) -> None:
        import pyarrow

        self._stream = pyarrow.CompressedInputStream(pyarrow.PythonFile(raw, "r"), "zstd")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._stream.read(len(buffer))
        except OSError as problem:
            raise _Unpacking(str(problem)) from None
        buffer[: len(data)] = data
        return len(data)


def _unpacked(raw: BinaryIO, packing: Packing) -> BinaryIO:
    if packing == "gzip":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    return io.BufferedReader(_Zstd(raw), PIECE)


def _is_trailer(line: bytes) -> bool:
    return line.startswith(TRAILER) and line.endswith(b"\n")


def _last_start(tail: bytes) -> int:
    """Where the last line begins that has ended, or the one that has not."""
    return tail.rfind(b"\n", 0, -1) + 1


def opened(path: Path) -> DumpFile:
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            start = file.read(8)
    except OSError as problem:
        raise NotWhole(f"{path} cannot be read: {problem.strerror}.") from None
    if not size:
        raise NotWhole(f"{path} is empty.", hint=CUT)
    packing = next((name for magic, name in PACKINGS.items() if start.startswith(magic)), "none")
    return DumpFile(path, size, cast(Packing, packing))
