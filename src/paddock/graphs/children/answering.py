"""A result as bytes, a piece at a time. Limits are kept while rows are fetched: a cross product of 10^9 rows is there
at once, and takes a gigabyte only when somebody reads it."""

from collections.abc import Callable, Iterator
from typing import Any

from paddock.graphs.children.arrow_answers import ArrowPieces
from paddock.graphs.children.formats import Csv, Format, Json
from paddock.graphs.children.result_types import read_type
from paddock.graphs.children.talking import DATA_BYTES
from paddock.graphs.children.values import Converters

CHECK_ROWS = 64


class Interrupted(Exception):
    """The query was cancelled while its rows were fetched."""


class TooLarge(Exception):
    """What was fetched is larger than may be sent, and the format has no place to say so."""


class Limits:
    """How much of the result is sent; `check` raises when it was cancelled meanwhile."""

    def __init__(self, rows: int, size: int, check: Callable[[], None]) -> None:
        self.rows = rows
        self.size = size
        self.check = check


class RowPieces:
    """JSON and CSV."""

    def __init__(self, result: Any, format: Format, limits: Limits, milliseconds: float) -> None:
        self._result = result
        self._format = format
        self._limits = limits
        self._milliseconds = milliseconds
        self.media_type = format.media_type
        self.rows_found = int(result.get_num_tuples())
        self.row_count = 0
        self.truncated = False

    def __iter__(self) -> Iterator[bytes]:
        result, texts = self._result, self._result.get_column_data_types()
        piece = bytearray(self._format.begin(result.get_column_names(), texts, list(map(read_type, texts))))
        size = len(piece)
        while result.has_next():
            if self.row_count % CHECK_ROWS == 0:
                self._limits.check()
            if self.row_count == self._limits.rows:
                self.truncated = True
                break
            row = self._format.row(result.get_next())
            size += len(row)
            if size > self._limits.size:
                if not self._format.tells_its_end:
                    raise TooLarge(f"The answer has more than {self._limits.size >> 20:,} MiB.")
                self.truncated = True
                break
            piece += row
            self.row_count += 1
            if len(piece) >= DATA_BYTES:
                yield bytes(piece)
                piece.clear()
        yield bytes(piece) + self._format.end(self.row_count, self._milliseconds, self.truncated)


def pieces_of(
    result: Any, format: str, converters: Converters, limits: Limits, milliseconds: float
) -> RowPieces | ArrowPieces:
    if format == "arrow":
        return ArrowPieces(result, converters, limits.rows, limits.size, limits.check, milliseconds)
    return RowPieces(result, (Json if format == "json" else Csv)(converters), limits, milliseconds)
