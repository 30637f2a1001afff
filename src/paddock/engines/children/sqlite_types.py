"""What a column of SQLite becomes in a file: declared by its type, never guessed from its values.

SQLite lets any value stand in any column; here a value that is not of its column's kind ends the export, naming
column, row and kind. An expression has no declared type unless it is a CAST.
"""

import datetime
import decimal
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from paddock.engines.children.wire import Failure

KINDS = {int: "an integer", float: "a real number", str: "text", bytes: "a blob", type(None): "null"}
NULL = type(None)
TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?")


@dataclass(frozen=True, slots=True)
class Kind:
    """`takes`: the storage classes that may stand in the column. `convert`: of one column's values."""

    arrow: pa.DataType
    takes: frozenset[type]
    convert: Callable[[Sequence[Any], pa.DataType], pa.Array]


def _plain(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array(values, arrow)


def _from_text(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array(values, pa.string()).cast(arrow)


def _times(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else _time(value) for value in values], arrow)


def _time(text: str) -> datetime.time:
    if TIME.fullmatch(text) is None:
        raise ValueError("no time of day")
    return datetime.time.fromisoformat(text)


def _booleans(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([None if value is None else {0: False, 1: True}[value] for value in values], arrow)


def _reals(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    return pa.array([_real(value) if type(value) is int else value for value in values], arrow)


def _real(value: int) -> float:
    if int(float(value)) != value:
        raise ValueError("this integer has no exact real number")
    return float(value)


def _decimals(values: Sequence[Any], arrow: pa.DataType) -> pa.Array:
    # A real number is taken as SQLite shows it: 0.1 is one tenth.
    return pa.array(
        [None if value is None else _decimal(str(value)) for value in values],
        pa.decimal128(arrow.precision, arrow.scale),
    )


def _decimal(text: str) -> decimal.Decimal:
    value = decimal.Decimal(text)
    if not value.is_finite():
        raise ValueError("not a number")
    return value


INTEGERS = Kind(pa.int64(), frozenset({int, NULL}), _plain)
REALS = Kind(pa.float64(), frozenset({float, int, NULL}), _reals)
TEXTS = Kind(pa.string(), frozenset({str, NULL}), _plain)
BLOBS = Kind(pa.binary(), frozenset({bytes, NULL}), _plain)
BOOLEANS = Kind(pa.bool_(), frozenset({int, NULL}), _booleans)
TIMESTAMPS = Kind(pa.timestamp("us"), frozenset({str, NULL}), _from_text)

# By the whole word, where the word says more than SQLite makes of it.
TYPES: Mapping[str, Kind] = {
    "BOOLEAN": BOOLEANS,
    "BOOL": BOOLEANS,
    "DATE": Kind(pa.date32(), frozenset({str, NULL}), _from_text),
    "DATETIME": TIMESTAMPS,
    "TIMESTAMP": TIMESTAMPS,
    "TIME": Kind(pa.time64("us"), frozenset({str, NULL}), _times),
    "STRING": TEXTS,
    "JSON": TEXTS,
    "UUID": TEXTS,
}
# Otherwise by SQLite's own rule: the first of these that the word contains.
AFFINITIES: Sequence[tuple[str, Kind]] = (
    ("INT", INTEGERS),
    ("CHAR", TEXTS),
    ("CLOB", TEXTS),
    ("TEXT", TEXTS),
    ("BLOB", BLOBS),
    ("REAL", REALS),
    ("FLOA", REALS),
    ("DOUB", REALS),
)
DECIMAL = re.compile(r"(?:DECIMAL|NUMERIC|DEC|NUMBER)\s*\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")


def kind_of(column: str, declared: str | None) -> Kind:
    text = (declared or "").strip().upper()
    exact = DECIMAL.fullmatch(text)
    if exact is not None:
        return _decimal_kind(column, text, int(exact[1]), int(exact[2] or 0))
    word = text.partition("(")[0].strip()
    if word in TYPES:
        return TYPES[word]
    for part, kind in AFFINITIES:
        if part in word:
            return kind
    raise _undeclared(column, declared)


def _decimal_kind(column: str, text: str, precision: int, scale: int) -> Kind:
    if not 1 <= precision <= 38 or scale > precision:
        raise _undeclared(column, text)
    return Kind(pa.decimal128(precision, scale), frozenset({int, float, str, NULL}), _decimals)


def _undeclared(column: str, declared: str | None) -> Failure:
    what = f"is declared as {declared}, which may hold any number" if declared else "has no declared type"
    return Failure(
        "type_not_declared",
        f"Column '{column}' {what}; types are not guessed from values.",
        hint="Write CAST(... AS INTEGER), AS REAL, AS TEXT or AS BLOB around it in the query.",
        refused=True,
    )


def array(field: pa.Field, declared: str, kind: Kind, values: Sequence[Any], before: int) -> pa.Array:
    """`before`: how many rows of the result came earlier, for the sentence when one does not fit."""
    if not kind.takes.issuperset(map(type, values)):
        raise _mismatch(field, declared, kind, values, before)
    try:
        return kind.convert(values, kind.arrow)
    except (ValueError, KeyError, OverflowError, decimal.DecimalException, pa.ArrowException):
        raise _mismatch(field, declared, kind, values, before) from None


def _mismatch(field: pa.Field, declared: str, kind: Kind, values: Sequence[Any], before: int) -> Failure:
    row, value = next((row, value) for row, value in enumerate(values, start=1) if not _fits(kind, value))
    what = KINDS[type(value)]
    if type(value) in kind.takes:
        what += f" that is no {field.type}"
    return Failure(
        "type_mismatch",
        f"Column '{field.name}' is declared as {declared}, but row {before + row:,} of the result holds {what}.",
        hint="Correct the value, leave the row out, or cast the column to a type that holds all of them (AS TEXT).",
        mistake=True,
    )


def _fits(kind: Kind, value: Any) -> bool:
    if type(value) not in kind.takes:
        return False
    try:
        kind.convert([value], kind.arrow)
    except (ValueError, KeyError, OverflowError, decimal.DecimalException, pa.ArrowException):
        return False
    return True
