"""What a query answers: rows for people, tables for programs."""

import contextlib
import html
import importlib
import io
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow

INSTALL_ONE = "python -m pip install pandas"
MOST_SHOWN = 50


class ResultTruncated(UserWarning):
    """The query has more rows than came."""


class MissingPackage(ImportError):
    """The message names the command that installs it."""


@dataclass(frozen=True, slots=True)
class Result:
    """`rows` are lists in the order of `columns`; iterated over, each row is a dict. `truncated`: there are more."""

    columns: Sequence[str]
    column_types: Sequence[str]
    rows: Sequence[Sequence[Any]]
    row_count: int
    execution_time_ms: float
    truncated: bool

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def _repr_html_(self) -> str:
        """For notebooks: the first rows as a table. Values are whatever somebody put into the graph."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self.columns)
        lines = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows[:MOST_SHOWN])
        more = "" if len(self.rows) <= MOST_SHOWN else f", the first {MOST_SHOWN} shown"
        cut = ", cut: there are more" if self.truncated else ""
        return (
            f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table><p>{len(self):,} rows{more}{cut}</p>"
        )


def _cell(value: Any) -> str:
    return f"<td>{html.escape('' if value is None else str(value))}</td>"


def read_result(data: Mapping[str, Any]) -> Result:
    return Result(
        columns=data["columns"],
        column_types=data["column_types"],
        rows=data["rows"],
        row_count=data["row_count"],
        execution_time_ms=data["execution_time_ms"],
        truncated=data["truncated"],
    )


class IncomingBytes(io.RawIOBase):
    """A body that arrives piece by piece, as the file that Arrow reads from."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._left = memoryview(piece)
        taken = min(len(buffer), len(self._left))
        buffer[:taken], self._left = self._left[:taken], self._left[taken:]
        return taken


class ArrowAnswer:
    """The batches of an Arrow stream as they come. `truncated` is known once the last was read."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        import pyarrow as pa

        self._reader = pa.ipc.open_stream(io.BufferedReader(IncomingBytes(pieces), 1 << 20))
        self.schema: pyarrow.Schema = self._reader.schema
        self.truncated = False

    def __iter__(self) -> "Iterator[pyarrow.RecordBatch]":
        while True:
            try:
                batch, metadata = self._reader.read_next_batch_with_custom_metadata()
            except StopIteration:
                return
            told = {} if metadata is None else dict(metadata)
            self.truncated = self.truncated or told.get(b"truncated") == b"true"
            yield batch


class CsvAnswer:
    """The bytes of a CSV as they come. A CSV cannot say that it was cut, so its head does: `truncated` is known from the first.
    None: the server does not say it."""

    def __init__(self, pieces: Iterator[bytes], rows: str | None) -> None:
        self._pieces = pieces
        sent, _, found = (rows or "").partition(" of ")
        known = sent.isdecimal() and found.isdecimal()
        self.rows_found = int(found) if known else None
        self.truncated = int(sent) < int(found) if known else None

    def __iter__(self) -> Iterator[bytes]:
        return self._pieces

    def __next__(self) -> bytes:
        return next(self._pieces)


def warn_if_cut(truncated: bool, rows: int) -> None:
    if truncated:
        warnings.warn(
            ResultTruncated(
                f"The answer was cut at {rows:,} rows. Ask for more with max_rows, or for less with LIMIT or count()."
            ),
            stacklevel=3,
        )


def to_frame(table: "pyarrow.Table", library: str | None = None) -> Any:
    """A DataFrame of pandas, else of polars, or of the one that is named."""
    table = _with_integers(table)
    for name in (library,) if library else ("pandas", "polars"):
        try:
            return _to_pandas(table) if name == "pandas" else _to_polars(table)
        except ModuleNotFoundError as missing:
            if missing.name != name:
                raise
    if library:
        raise MissingPackage(f"{library} is not installed: python -m pip install {library}")
    raise MissingPackage(f"A DataFrame needs pandas or polars, and neither is installed: {INSTALL_ONE}")


def _with_integers(table: "pyarrow.Table") -> "pyarrow.Table":
    """Sums of integers have 128 bits, which Arrow has only as decimals: nobody can draw those, and they fit into 64."""
    import pyarrow as pa

    for place, field in enumerate(table.schema):
        if (field.metadata or {}).get(b"paddock") == b"integer":
            with contextlib.suppress(pa.ArrowInvalid):  # one that does not fit stays exact
                table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return table


def _to_pandas(table: "pyarrow.Table") -> Any:
    importlib.import_module("pandas")  # Arrow would say in other words that it is missing
    return table.to_pandas()


def _to_polars(table: "pyarrow.Table") -> Any:
    return importlib.import_module("polars").from_arrow(table)
