"""Rows to Arrow by way of Python objects: every type, nested ones too, and every page.

A value of the wrong kind is an error here and never converted, because the wire has one form for each type.

Large pages are read in pieces. Parsing one, and freeing it, holds the interpreter's lock from beginning to end, and the
event loop waits for that lock; besides, a page is ten times as large as objects.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, islice
from types import NoneType
from typing import Any

import msgspec
import orjson
import pyarrow as pa

from paddock.engines.trino.decoding.collection import collection_off
from paddock.engines.trino.decoding.problems import BadPage, Beyond, NotInUtc, OutOfRange, Zoned
from paddock.engines.trino.decoding.texts import from_keys, from_texts
from paddock.engines.trino.signature import Signature
from paddock.engines.trino.types import BY_NAME, TrinoColumn, arrow_type

Values = Sequence[Any]
Reader = Callable[[Values], pa.Array]

# Text that becomes objects at once: a few milliseconds.
AT_ONCE = 1 << 18
_ROWS = msgspec.json.Decoder(list[msgspec.Raw])

# Rows turned into columns at once: more, and the processor's cache no longer holds them.
TURNED = 2000

NOT_JSON = "A page of the result is not JSON: it was cut or changed on its way."
_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class ByObjects:
    def __init__(self, columns: Sequence[TrinoColumn]) -> None:
        self._columns = columns
        self._schema = pa.schema([pa.field(column.name, column.type) for column in columns])
        self._readers = [reader(column.signature) for column in columns]

    def decode(self, rows: bytes) -> pa.RecordBatch:
        with collection_off():
            batches = [
                pa.RecordBatch.from_arrays(self._arrays(_loaded(piece)), schema=self._schema) for piece in _pieces(rows)
            ]
        return batches[0] if len(batches) == 1 else pa.concat_batches(batches)

    def _arrays(self, rows: list[Any]) -> list[pa.Array]:
        try:
            columns = turned(rows, len(self._columns))
        except (ValueError, TypeError):
            raise BadPage("A page of the result has rows with another number of columns.") from None
        return [read_column(*each) for each in zip(self._columns, self._readers, columns, strict=True)]


def _pieces(rows: bytes) -> Iterator[bytes]:
    """Of whole rows. Where these end is found without making anything of them."""
    if len(rows) <= 2 * AT_ONCE:
        yield rows
        return
    try:
        found = _ROWS.decode(rows)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise BadPage(NOT_JSON) from None
    step = max(1, len(found) * AT_ONCE // len(rows))
    for start in range(0, len(found), step):
        yield b"".join((b"[", b",".join(found[start : start + step]), b"]"))


def _loaded(rows: bytes) -> list[Any]:
    try:
        loaded = orjson.loads(rows)
    except orjson.JSONDecodeError:
        raise BadPage(NOT_JSON) from None
    if not isinstance(loaded, list):
        raise BadPage("A page of the result is not a list of rows.")
    return loaded


def turned(rows: Sequence[Any], width: int) -> list[list[Any]]:
    """Columns of these rows. Raises where a row is no list of that width."""
    columns: list[list[Any]] = [[] for _ in range(width)]
    only(rows, list)
    remaining = iter(rows)
    while some := list(islice(remaining, TURNED)):
        for column, values in zip(columns, zip(*some, strict=True), strict=True):
            column.extend(values)
    return columns


def read_column(column: TrinoColumn, read: Callable[[Any], pa.Array], values: Any) -> pa.Array:
    try:
        return read(values)
    except Beyond:
        raise OutOfRange(column.name, column.native) from None
    except Zoned:
        raise NotInUtc(column.name, column.native) from None
    except (pa.ArrowException, ValueError, TypeError, KeyError, OverflowError):
        # Not the value: it is the owner's data.
        raise BadPage(
            f"A page of the result holds something else than {column.native} in column '{column.name}'."
        ) from None


def only(values: Values, *types: type) -> None:
    if not set(map(type, values)) <= {NoneType, *types}:
        raise TypeError("a value of another type")


def reader(signature: Signature) -> Reader:
    wire = BY_NAME[signature.raw].wire
    if wire == "array":
        return _array(signature)
    if wire == "map":
        return _map(signature)
    if wire == "row":
        return _row(signature)
    type_ = arrow_type(signature)
    if wire == "boolean":
        return lambda values: pa.array(values, type_)
    if wire == "integer":
        return _integers(type_)
    if wire == "float":
        return _floats(type_)
    of_texts = from_texts(signature)
    return lambda values: of_texts(pa.array(values, pa.string()))


def _integers(type_: pa.DataType) -> Reader:
    def read(values: Values) -> pa.Array:
        only(values, int)  # Arrow would cut 1.5 to 1 without a word
        return pa.array(values, type_)

    return read


def _floats(type_: pa.DataType) -> Reader:
    def read(values: Values) -> pa.Array:
        kinds = set(map(type, values))
        if str in kinds:
            values = [_NON_FINITE[value] if type(value) is str else value for value in values]
        if int in kinds:
            values = [float(value) if type(value) is int else value for value in values]
        if not kinds <= {NoneType, float, int, str}:
            raise TypeError("not a number")
        numbers = pa.array(values, pa.float64())
        return numbers if type_ == pa.float64() else _narrowed(numbers)

    return read


def _narrowed(numbers: pa.Array) -> pa.Array:
    """To 32 bits from the shortest text, which is the one that was sent: rounding to 64 bits first and then again
    can end one step beside."""
    return numbers.cast(pa.string()).cast(pa.float32())


def _array(signature: Signature) -> Reader:
    element = reader(signature.children[0])
    type_ = arrow_type(signature)

    def read(values: Values) -> pa.Array:
        only(values, list)
        elements = element(list(chain.from_iterable(filter(None, values))))
        return pa.ListArray.from_arrays(_offsets(values), elements, type=type_, mask=_missing(values))

    return read


def _map(signature: Signature) -> Reader:
    of_keys = from_keys(signature.children[0])
    item = reader(signature.children[1])
    type_ = arrow_type(signature)

    def read(values: Values) -> pa.Array:
        only(values, dict)
        full = list(filter(None, values))
        keys = of_keys(pa.array(list(chain.from_iterable(full)), pa.string()))
        items = item(list(chain.from_iterable(map(dict.values, full))))
        return pa.MapArray.from_arrays(_offsets(values), keys, items, type=type_, mask=_missing(values))

    return read


def _row(signature: Signature) -> Reader:
    readers = [reader(child) for child in signature.children]
    type_ = arrow_type(signature)
    nothing = [None] * len(readers)

    def read(values: Values) -> pa.Array:
        only(values, list)
        full = values if None not in values else [nothing if value is None else value for value in values]
        fields = [read_one(field) for read_one, field in zip(readers, turned(full, len(readers)), strict=True)]
        return pa.StructArray.from_arrays(fields, fields=list(type_), mask=_missing(values))

    return read


def _offsets(values: Values) -> pa.Array:
    lengths = [len(value) if value else 0 for value in values]
    return pa.array(list(accumulate(lengths, initial=0)), pa.int32())


def _missing(values: Values) -> pa.Array | None:
    return pa.array([value is None for value in values], pa.bool_()) if None in values else None
