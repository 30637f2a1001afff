"""JSON, CSV and zips of CSV, parsed from their first byte to their last."""

import codecs
import csv
import io
import json
import re
import sys
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn, cast

from paddock.dumps.verifying.findings import Checked, NotWhole, Told
from paddock.dumps.verifying.reading import CUT, LONGEST_TRAILER, PIECE, DumpFile

# What a file of one table is called that does not name it.
ONE = "(one table)"
_SPACE = re.compile(r"[ \t\r\n]*+")


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


# What numbers are worth does not matter here, and some have more digits than Python converts.
_DECODER = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_no_constant)


def check_json(file: DumpFile, told: Told) -> list[Checked]:
    with file.plain(told) as stream:
        text = _Text(file, stream)
        if text.took("["):
            found = [Checked(ONE, sum(1 for _ in text.rows()))]
        else:
            text.expect("{")
            found = [Checked(name, rows) for name, rows in text.tables()]
        text.expect_end()
        return found


class _Text:
    """Characters of a stream, and the place we are at."""

    def __init__(self, file: DumpFile, stream: BinaryIO) -> None:
        self._file, self._stream = file, stream
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._text, self._at, self._ended = "", 0, False

    def tables(self) -> Iterator[tuple[str, int]]:
        if self.took("}"):
            return
        while True:
            name = self.value()
            if not isinstance(name, str):
                raise self.wrong()
            self.expect(":")
            self.expect("[")
            yield name, sum(1 for _ in self.rows())
            if self.took("}"):
                return
            self.expect(",")

    def rows(self) -> Iterator[None]:
        if self.took("]"):
            return
        while True:
            if not isinstance(self.value(), dict):
                raise self.wrong()
            yield
            if self.took("]"):
                return
            self.expect(",")

    def value(self) -> Any:
        self._skip()
        while True:
            try:
                found, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError as problem:
                # Where text ends too early, more may help: else it is wrong, and is not read on to its end.
                early = problem.pos >= len(self._text) - 16 or problem.msg.startswith("Unterminated string")
                if not early or not self._more():
                    raise self.wrong() from None
            except (ValueError, RecursionError):
                raise self.wrong() from None
            else:
                self._at = end
                return found

    def took(self, sign: str) -> bool:
        self._skip()
        if not self._text.startswith(sign, self._at):
            return False
        self._at += 1
        return True

    def expect(self, sign: str) -> None:
        if not self.took(sign):
            raise self.wrong()

    def expect_end(self) -> None:
        self._skip()
        if self._at < len(self._text):
            raise self.wrong()

    def wrong(self) -> NotWhole:
        self._skip()
        if self._at >= len(self._text) or self._ended:
            return NotWhole(f"{self._file.path} is cut short: its JSON does not end.", hint=CUT)
        seen = self._text[self._at : self._at + 40]
        return NotWhole(f"{self._file.path} is not a dump in JSON as Paddock writes it: there is {seen!r}.")

    def _skip(self) -> None:
        """To what is no space, which is there, or the end is."""
        while True:
            space = _SPACE.match(self._text, self._at)
            assert space is not None
            self._at = space.end()
            if self._at < len(self._text) or not self._more():
                return

    def _more(self) -> bool:
        if self._ended:
            return False
        left = len(self._text) - self._at
        data = self._stream.read(max(PIECE, left))
        try:
            more = self._decoder.decode(data, final=not data)
        except UnicodeDecodeError as problem:
            raise NotWhole(f"{self._file.path} is not a dump in JSON: {problem}.", hint=CUT) from None
        self._ended = not data
        self._text, self._at = self._text[self._at :] + more, 0
        return bool(data)


def check_csv(file: DumpFile, told: Told) -> list[Checked]:
    with file.plain(told) as stream:
        return [_checked(ONE, stream, str(file.path))]


def check_zip(file: DumpFile, told: Told) -> tuple[list[Checked], str | None]:
    """The tables as the manifest names them, and the time it tells."""
    try:
        with zipfile.ZipFile(file.path) as archive:
            return _entries(file, archive, told)
    except (zipfile.BadZipFile, EOFError, zlib.error, NotImplementedError) as problem:
        raise NotWhole(f"{file.path} is cut short or changed: {problem}.", hint=CUT) from None


def _entries(file: DumpFile, archive: zipfile.ZipFile, told: Told) -> tuple[list[Checked], str | None]:
    try:
        if archive.getinfo("manifest.json").file_size > LONGEST_TRAILER:
            raise KeyError
        manifest = json.loads(archive.read("manifest.json"))
        files, expected = dict(manifest["files"]), dict(manifest["tables"])
    except (KeyError, ValueError, TypeError):
        raise NotWhole(f"{file.path} is a zip without the manifest of a dump: somebody else wrote it.") from None
    found, done = [], 0
    entries = {entry.filename: entry for entry in archive.infolist()}
    for name, table in files.items():
        rows = expected.get(table)
        if name not in entries:
            found.append(Checked(table, None, rows, f"{name} is not in the zip"))
            continue
        with archive.open(entries[name]) as stream:
            counted = _checked(table, cast(BinaryIO, stream), name)
        found.append(Checked(table, counted.rows, rows, counted.problem))
        done += entries[name].compress_size
        told(done, file.size)
    return found, manifest.get("pointInTime")


def _checked(table: str, stream: BinaryIO, name: str) -> Checked:
    csv.field_size_limit(sys.maxsize)
    # What is not UTF-8 is some value's bytes, and no reason to stop.
    last = _LastBytes(stream)
    lines = io.TextIOWrapper(io.BufferedReader(last, PIECE), "utf-8", "surrogateescape", newline="")
    rows = -1
    width = 0
    try:
        for cells in csv.reader(lines, strict=True):
            rows += 1
            width = width or len(cells)
            if len(cells) != width:
                return Checked(table, rows, None, f"row {rows:,} has {len(cells)} cells, and the header {width}")
    except csv.Error as problem:
        return Checked(table, max(rows, 0), None, f"{name} is cut short or no CSV: {problem}")
    if rows < 0 or last.bytes != b"\r\n":
        return Checked(table, max(rows, 0), None, f"{name} is cut short: its last line has no end")
    return Checked(table, rows)


class _LastBytes(io.RawIOBase):
    """Passes a stream on, and remembers how it ended."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.bytes = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        self.bytes = (self.bytes + data)[-2:]
        return len(data)
