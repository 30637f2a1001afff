"""Chunks of a table: where they end, and their bytes, each by one query.

A place is the id of the first row. A chunk ends after CHUNK_ROWS rows, or before the row that would take it over
CHUNK_BYTES as sizes are guessed from the values alone: so ends depend on nothing but the rows. Ids need not be dense.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Protocol

import duckdb

from paddock.dumps.duckdb import cells, documents, large
from paddock.dumps.duckdb.literals import Literals
from paddock.dumps.duckdb.types import NESTED, Type
from paddock.dumps.model import CHUNK_BYTES, CHUNK_ROWS, Format
from paddock.dumps.source import Rows
from paddock.engines.children.quoting import literal, quoted
from paddock.jobs.errors import PermanentRunnerError

# Rendered text of DuckDB ends at 4 GiB, and text grows while it is quoted.
MOST_BYTES = 1 << 30
# A name that no column has.
ROW = '"#"'

# Rows whose size stands for others'.
SAMPLE = 8
# How many ids are looked at together, at most.
MOST_AHEAD = 2 * CHUNK_ROWS
# How many rows fit, the last of them, the first that does not, the size of those that do and of the largest; the last row
# that was looked at, and the size of all of them.
_WINDOW = f"""
SELECT count(*) FILTER (fits), max(r) FILTER (fits), min(r) FILTER (NOT fits), (sum(n) FILTER (fits))::BIGINT,
  max(n) FILTER (fits), max(r), sum(n)::BIGINT
FROM (
  SELECT r, n, {{count}} + k = 1 OR ({{count}} + k <= {CHUNK_ROWS} AND {{size}} + total <= {CHUNK_BYTES}) AS fits FROM (
    SELECT r, n, row_number() OVER rows AS k, sum(n) OVER rows AS total
    FROM (SELECT {{rows}}) WINDOW rows AS (ORDER BY r ROWS UNBOUNDED PRECEDING)
  )
)"""  # noqa: S608  numbers of our own


class Ask(Protocol):
    """Answers one row. What needs too much memory gets more, or is an error where the caller can ask for less."""

    def __call__(self, sql: str, frugal: bool, /) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class _Chunk:
    count: int = 0
    end: int = 0
    after: int | None = None
    size: int = 0
    largest: int = 0

    def and_(self, count: int, end: int | None, size: int | None, largest: int | None) -> "_Chunk":
        if not count or end is None:
            return self
        return _Chunk(self.count + count, end, None, self.size + (size or 0), max(self.largest, largest or 0))


@dataclass(frozen=True, slots=True)
class DuckdbColumn:
    name: str
    type: Type
    generated: bool = False


@dataclass(frozen=True, slots=True)
class Stored:
    """A table of the database. `numbered`: its rows have ids; a column named rowid hides them."""

    schema: str
    name: str
    columns: Sequence[DuckdbColumn]
    rows: int = 0
    refers_to_itself: bool = False

    @property
    def numbered(self) -> bool:
        return all(column.name.lower() != "rowid" for column in self.columns)

    @property
    def written(self) -> str:
        return quoted(self.name) if self.schema == "main" else f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def display_name(self) -> str:
        return self.name if self.schema == "main" else f"{self.schema}.{self.name}"


class Renderer:
    def __init__(self, catalog: str, table: Stored, format: Format, *, csv_safe: bool = False) -> None:
        self._table = table
        self._from = f"{quoted(catalog)}.{quoted(table.schema)}.{quoted(table.name)}"
        self._columns = [column for column in table.columns if format != "sql" or not column.generated]
        self._format = format
        self._safe = csv_safe
        self._size = self._guess()
        # Grows as long as rows are small.
        self._span = 1

    def rows(self, ask: Ask, place: int | None) -> Rows:
        start = place or 0
        chunk = self._chunk(ask, start)
        if not chunk.count:
            return Rows(b"", None, {self._table.display_name: 0})
        if chunk.largest > MOST_BYTES:
            raise PermanentRunnerError(
                f"A row of table '{self._table.display_name}' is too large to be written as text "
                f"(about {chunk.largest:,} bytes; rowid {chunk.end}).",
                code="value_too_large",
                hint="Leave the table out with exclude_tables, or store its large values elsewhere.",
            )
        if chunk.size > CHUNK_BYTES:
            large.give_back()
            data = self._large(ask, chunk.end)
            large.give_back()
        else:
            data = self._data(ask, start, chunk.end, careful=False)
            if self._format == "sql" and _needs_care(data):
                data = self._data(ask, start, chunk.end, careful=True)
        return Rows(data, chunk.after, {self._table.display_name: chunk.count})

    def likely_size(self, ask: Ask) -> int:
        """Of all rows, by some at the beginning, in the middle and at the end. Where those are too large to be looked at
        together, values are not packed, and the file is as large."""
        seen: list[int] = []
        for at in (0, self._table.rows // 2, max(0, self._table.rows - SAMPLE)):
            with suppress(duckdb.OutOfMemoryException):
                rows = self._chosen(at, at + SAMPLE - 1)
                (width,) = ask(f"SELECT avg({self._size})::BIGINT FROM {rows}", True)  # noqa: S608  names are quoted
                seen += [] if width is None else [width]
        return self._table.rows * max(seen, default=0)

    def _chunk(self, ask: Ask, start: int) -> "_Chunk":
        """Looks ahead in windows of ids: DuckDB holds all large values of what it looks at. How large the windows are
        changes what it costs, and never where the chunk ends."""
        found, at = _Chunk(), start
        while True:
            try:
                count, end, after, size, largest, last, seen = ask(self._window(at, found), self._span > 1)
            except duckdb.OutOfMemoryException:
                self._span = max(1, self._span // 8)
                continue
            if last is None:
                (following,) = ask(self._following(at + self._span), False)
                if following is None:
                    return found
                at = following
                continue
            found = found.and_(count, end, size, largest)
            self._span = max(1, min(self._span * 8, self._span * 2 * CHUNK_BYTES // seen, MOST_AHEAD))
            if after is not None:
                return replace(found, after=after)
            at = last + 1

    def _window(self, at: int, found: "_Chunk") -> str:
        if self._table.numbered:
            rows = f"rowid AS r, {self._size} AS n FROM {self._from} AS {ROW} WHERE rowid >= {at} AND rowid < {at + self._span}"
            rows += f" LIMIT {CHUNK_ROWS + 1 - found.count}"
        else:
            rows = f"row_number() OVER () + {at - 1} AS r, {self._size} AS n FROM {self._slice(at, self._span)}"
        words = {"{rows}": rows, "{count}": str(found.count), "{size}": str(found.size)}
        return re.sub(r"{\w+}", lambda word: words[word[0]], _WINDOW)

    def _following(self, at: int) -> str:
        if self._table.numbered:
            return f"SELECT min(rowid) FROM (SELECT rowid FROM {self._from} WHERE rowid >= {at} LIMIT 1)"  # noqa: S608  quoted
        return "SELECT NULL"

    def _data(self, ask: Ask, start: int, end: int, *, careful: bool) -> bytes:
        row, between = self._row(careful=careful)
        chosen = self._chosen(start, end)
        (data,) = ask(f"SELECT encode(string_agg({row}, {between})) FROM {chosen}", False)  # noqa: S608  names are quoted
        assert isinstance(data, bytes)
        if self._format != "sql":
            return data
        return self._insert.encode() + data + b";\n"

    def _large(self, ask: Ask, at: int) -> bytes:
        """One row: what is small in it together, each large value alone."""
        chosen = self._chosen(at, at)
        sizes = ask(f"SELECT {', '.join(size for _, size in self._sizes())} FROM {chosen}", False)  # noqa: S608  as above
        alone = {number for number, size in enumerate(sizes) if size > large.LARGE}
        together = [number for number in range(len(self._columns)) if number not in alone]
        small = dict(zip(together, self._texts(ask, chosen, together), strict=True))
        row = BytesIO()
        row.write({"sql": self._insert.encode() + b"(", "json": b"{"}.get(self._format, b""))
        for number, column in enumerate(self._columns):
            if number:
                row.write(b", " if self._format == "json" else b",")
            if self._format == "json":
                row.write(f"{documents.key(column.name)}: ".encode())
            write = large.writer(column.type.id, self._format, safe=self._safe)
            if number not in alone:
                row.write(small[number])
            elif write is None:
                row.write(self._texts(ask, chosen, [number])[0])
            else:
                write(row, self._stored_bytes(ask, chosen, column))
                large.give_back()
        row.write({"sql": b");\n", "json": b"}"}.get(self._format, b"\r\n"))
        return row.getvalue()

    def _stored_bytes(self, ask: Ask, chosen: str, column: DuckdbColumn) -> bytes:
        value = _value(column)
        stored = value if column.type.id == "blob" else f"encode({value}::VARCHAR)"
        (data,) = ask(f"SELECT {stored} FROM {chosen}", False)  # noqa: S608  as above
        assert isinstance(data, bytes)
        return data

    def _texts(self, ask: Ask, chosen: str, numbers: Sequence[int], *, careful: bool = False) -> Sequence[bytes]:
        if not numbers:
            return []
        texts = self._parts(careful=careful)
        data = ask(f"SELECT {', '.join(f'encode({texts[number]})' for number in numbers)} FROM {chosen}", False)  # noqa: S608  as above
        if self._format == "sql" and not careful and any(map(_needs_care, data)):
            return self._texts(ask, chosen, numbers, careful=True)
        return data

    def _chosen(self, start: int, end: int) -> str:
        if self._table.numbered:
            return f"{self._from} AS {ROW} WHERE rowid >= {start} AND rowid <= {end}"
        return self._slice(start, end - start + 1)

    def _slice(self, start: int, count: int) -> str:
        """In storage order, as one thread reads it. Slow far behind the beginning, but no id is left to begin with."""
        return f"(SELECT * FROM {self._from} LIMIT {count} OFFSET {start}) AS {ROW}"  # noqa: S608  as above

    @property
    def _insert(self) -> str:
        names = ", ".join(quoted(column.name) for column in self._columns)
        listed = f" ({names})" if len(self._columns) < len(self._table.columns) else ""
        return f"INSERT INTO {self._table.written}{listed} VALUES\n"

    def _parts(self, *, careful: bool) -> list[str]:
        """The text of each column."""
        values = [(_value(column), column) for column in self._columns]
        match self._format:
            case "json":
                return [documents.of(value, column.type) for value, column in values]
            case "csv":
                null = "\\N" if len(values) == 1 else ""
                return [cells.of(value, column.type, null=null, safe=self._safe) for value, column in values]
        literals = Literals(careful=careful)
        return [literals.of(value, column.type) for value, column in values]

    def _row(self, *, careful: bool) -> tuple[str, str]:
        parts = self._parts(careful=careful)
        match self._format:
            case "json":
                keys = [literal(f"{documents.key(column.name)}: ") for column in self._columns]
                pairs = [f"{key}, {part}" for key, part in zip(keys, parts, strict=True)]
                return f"concat('{{', {_joined(pairs, ', ')}, '}}')", literal(",\n")
            case "csv":
                return f"concat({_joined(parts, ',')}, chr(13), chr(10))", "''"
        # A row that refers to another of its table must come in a later statement.
        between = f";\n{self._insert}" if self._table.refers_to_itself else ",\n"
        return f"concat('(', {_joined(parts, ',')}, ')')", literal(between)

    def _guess(self) -> str:
        """About as many bytes as a row becomes."""
        plain = 3
        for column in self._columns:
            plain += 4 if self._format != "json" else 8 + len(column.name.encode())
        sizes = self._sizes()
        plain += sum(fixed for fixed, _ in sizes)
        return " + ".join([f"{plain}::BIGINT", *(size for fixed, size in sizes if not fixed)])

    def _sizes(self) -> list[tuple[int, str]]:
        """Of each column, where it is always about the same, and else what asks for it."""
        sizes = []
        for column in self._columns:
            value = f"{ROW}.{quoted(column.name)}"
            match column.type.id:
                case "varchar" | "json":
                    size = f"strlen({value})"
                case "blob":
                    size = f"2 * octet_length({value})"
                case "bit" | "bignum" | "geometry" | "enum":
                    size = f"strlen({value}::VARCHAR)"
                case id if id in NESTED:
                    size = f"strlen({value}::VARCHAR) * 3 // 2"
                case _:
                    sizes.append((16, "0"))
                    continue
            sizes.append((0, f"coalesce({size}, 0)::BIGINT"))
        return sizes


def _value(column: DuckdbColumn) -> str:
    """Without its collation: DuckDB puts no texts of different ones together, and compares them by it."""
    value = f"{ROW}.{quoted(column.name)}"
    return f'({value} COLLATE "binary")' if column.type.id == "varchar" else value


def _needs_care(data: bytes) -> bool:
    return b"\0" in data or b"\r" in data


def _joined(parts: Sequence[str], between: str) -> str:
    return f", {literal(between)}, ".join(parts)
