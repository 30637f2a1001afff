"""Results as JSON and CSV, a piece at a time. How single values look is said in `values`.

A format is told the columns, then rows, and what was counted at the end; it gives back bytes. It knows no limits.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from paddock.declared_types import Type
from paddock.graphs.children.values import Converter, Converters, encode

Row = Sequence[Any]


class Format(Protocol):
    media_type: str
    # Whether it says at its end that rows are missing. Else how many there are is said before it begins.
    tells_its_end: bool

    def begin(self, names: Sequence[str], type_texts: Sequence[str], types: Sequence[Type]) -> bytes: ...

    def row(self, row: Row) -> bytes: ...

    def end(self, row_count: int, milliseconds: float, truncated: bool) -> bytes: ...


class Json:
    media_type = "application/json"
    tells_its_end = True

    def __init__(self, converters: Converters) -> None:
        self._converters = converters
        self._columns: Sequence[Converter | None] = ()
        self._first = True

    def begin(self, names: Sequence[str], type_texts: Sequence[str], types: Sequence[Type]) -> bytes:
        self._columns = [self._converters.of(type) for type in types]
        head = encode({"columns": names, "column_types": type_texts})
        return b'{"data":' + head[:-1] + b',"rows":['

    def row(self, row: Row) -> bytes:
        values = [
            value if value is None or convert is None else convert(value)
            for value, convert in zip(row, self._columns, strict=True)
        ]
        first, self._first = self._first, False
        return encode(values) if first else b"," + encode(values)

    def end(self, row_count: int, milliseconds: float, truncated: bool) -> bytes:
        counted = {"row_count": row_count, "execution_time_ms": milliseconds, "truncated": truncated}
        return b"]," + encode(counted)[1:] + b"}"


# What a CSV cell of these types is, is not in quotes; everything else is.
BARE = frozenset(
    {
        "BOOL", "INT8", "INT16", "INT32", "INT64", "INT128", "UINT8", "UINT16", "UINT32", "UINT64", "SERIAL", "FLOAT",
        "DOUBLE", "DECIMAL", "DATE", "TIMESTAMP", "TIMESTAMP_TZ", "UUID", "INTERVAL",
    }
)  # fmt: skip
NESTED = frozenset({"LIST", "MAP", "STRUCT"})


class Csv:
    """As exports write it: text in quotes, numbers and times without, NULL is nothing at all; nested values are JSON."""

    media_type = "text/csv"
    tells_its_end = False

    def __init__(self, converters: Converters) -> None:
        self._converters = converters
        self._columns: Sequence[tuple[str, Converter | None]] = ()

    def begin(self, names: Sequence[str], type_texts: Sequence[str], types: Sequence[Type]) -> bytes:
        self._columns = [(type.name, self._converters.of(type)) for type in types]
        return (",".join(map(_in_quotes, names)) + "\n").encode()

    def row(self, row: Row) -> bytes:
        cells = (self._cell(value, *column) for value, column in zip(row, self._columns, strict=True))
        return (",".join(cells) + "\n").encode()

    def end(self, row_count: int, milliseconds: float, truncated: bool) -> bytes:
        return b""

    def _cell(self, value: Any, type: str, convert: Converter | None) -> str:
        if value is None:
            return ""
        converted = value if convert is None else convert(value)
        if type in BARE:
            return str(CELLS.get(type, _json_text)(converted))
        return _in_quotes(converted if isinstance(converted, str) else encode(converted).decode())


def _json_text(value: Any) -> str:
    return value if isinstance(value, str) else str(encode(value), "utf-8")


CELLS: Mapping[str, Any] = {
    "TIMESTAMP": lambda text: text.replace("T", " ", 1),
    "TIMESTAMP_TZ": lambda text: text.replace("T", " ", 1),
}


def _in_quotes(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'
