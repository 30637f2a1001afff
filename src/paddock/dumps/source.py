"""What a dump needs of a database: a frozen state, and its rows in chunks whose bounds depend on nothing else.

Chunks are a pure function of the frozen state, the format and the place: about CHUNK_ROWS rows, cut at CHUNK_BYTES of
output. Rendering the same place again gives the same bytes, in any process, on any day. That is what a resumed dump
stands on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from paddock.dumps.model import DumpOptions, Format

# Where the next chunk of a table begins: JSON, typed by the source (blobs and text as base64, floats by their bits).
Place = Any


@dataclass(frozen=True, slots=True)
class Table:
    """`rows` is an estimate, for people."""

    name: str
    rows: int | None = None
    columns: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Section:
    """What stands before and after a table's rows; without a table: all there is."""

    head: bytes = b""
    table: Table | None = None
    tail: bytes = b""


@dataclass(frozen=True, slots=True)
class Rows:
    """`next` is None after the last rows of the table. `counts`: rows of each table in it; for a source that writes many
    tables in one section, else of the one. `begins`: False where this goes on with a row of the rows before."""

    data: bytes
    next: Place | None
    counts: Mapping[str, int] = field(default_factory=dict)
    begins: bool = True


class Frozen(Protocol):
    """One state of a database, opened. One caller at a time; what blocks is the source's own business, on threads."""

    @property
    def identity(self) -> str:
        """The library and what else decides about bytes: a draft that another began is begun anew."""

    @property
    def point_in_time(self) -> datetime: ...

    @property
    def size(self) -> int:
        """Of the source, in bytes, unpacked: for estimates and part sizes. A dump has at most three times as many."""

    @property
    def tables(self) -> Sequence[Table]:
        """Those asked for, in order; `columns` as they appear in CSV and JSON."""

    def sections(self) -> Sequence[Section]:
        """Of the SQL format, tables with their rows' places. JSON and CSV are put together by `composing`."""

    async def rows(self, table: Table, format: Format, place: Place | None) -> Rows:
        """From `place`, None: the first. SQL: statements, each with its newline. JSON: objects with `,\\n` between, none at
        the ends. CSV: lines that end in CRLF, without the header. A large row may go on in the rows that follow."""

    async def close(self) -> None: ...


@runtime_checkable
class HasFile(Protocol):
    """A frozen state that is itself a file people may want."""

    @property
    def file(self) -> Path: ...


@runtime_checkable
class HasUnreadable(Protocol):
    """A frozen state with tables whose rows nobody can read, so that JSON and CSV cannot have them."""

    @property
    def unreadable(self) -> Sequence[str]: ...


# Told pages or bytes done and the total; awaited, so that the caller can save.
Progress = Callable[[int, int], Awaitable[None]]


class FileSource(Protocol):
    """Dumped from a copy, which outlives the process: resumable."""

    async def look(self, options: DumpOptions) -> None:
        """Raises `unknown_table` for what is asked for and not there. Without a copy: of what is there just now."""

    async def copy(self, target: Path, progress: Progress) -> datetime:
        """Makes the copy and flushes it to the disk. Answers the point in time it stands for."""

    async def open(self, copy: Path, point_in_time: datetime, options: DumpOptions) -> Frozen: ...


class LiveSource(Protocol):
    """Dumped from a snapshot that lives as long as this process holds it: a loss begins a new draft."""

    async def look(self, options: DumpOptions) -> None:
        """As of a file, without a snapshot."""

    async def open(self, format: Format, options: DumpOptions, draft: str) -> Frozen: ...
