"""What a value of JSON is in a declared column. Only what keeps it exactly: anything else does not fit.

A date, a time and a UUID are text as ISO 8601 and RFC 9562 have them; a time with a zone is kept in UTC. A BLOB is text in
base64, a MAP an object whose keys are read as its key type, a STRUCT an object of which the named fields are taken.
"""

import binascii
from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

import msgspec

from paddock.declared_types import MOST_DIGITS, Type

# More digits than a column can have: Python's own context would refuse what has more than 28.
WIDE = Context(prec=2 * MOST_DIGITS)
LARGEST_FLOAT = 3.4028234663852886e38
# Numbers with a point as they were written: as floats, long decimals would change.
EXACT = msgspec.json.Decoder(float_hook=Decimal)


class Misfit(Exception):
    """A value that its column cannot hold; the sentence names the column and never the value."""


def column_values(data: bytes, columns: Mapping[str, Type]) -> list[Any]:
    """Of one record, in the order of the columns. What a record does not have is null."""
    try:
        found = EXACT.decode(data)
    except (msgspec.DecodeError, RecursionError):
        raise Misfit("its data cannot be read") from None
    if not isinstance(found, dict):
        found = {}
    return [_value(found.get(name), name, type) for name, type in columns.items()]


def _value(value: Any, name: str, type: Type) -> Any:
    try:
        return fit(value, type)
    except (ValueError, InvalidOperation, OverflowError, binascii.Error):
        raise Misfit(f"the value of '{name}' is no {type}") from None


def fit(value: Any, type: Type) -> Any:
    """As Arrow takes it. Raises ValueError or a kin of it."""
    if value is None:
        return None
    if type.name == "LIST":
        return [fit(one, type.inner[0]) for one in _instance(value, list)]
    if type.name == "MAP":
        key, inner = type.inner
        return [(_key(name, key), fit(one, inner)) for name, one in _instance(value, dict).items()]
    if type.name == "STRUCT":
        given = _instance(value, dict)
        return {name: fit(given.get(name), inner) for name, inner in zip(type.fields, type.inner, strict=True)}
    if type.name == "DECIMAL":
        return _decimal(value, type)
    return _FITS[type.name](value)


def _instance(value: Any, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise ValueError
    return value


def _key(text: str, type: Type) -> Any:
    """The keys of an object are text, whatever they mean."""
    return fit(int(text) if type.name.startswith("INT") else text, type)


def _decimal(value: Any, type: Type) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, str | int | Decimal):
        raise ValueError
    number = Decimal(value)
    if not number.is_finite() or number.adjusted() >= type.precision:
        raise ValueError
    exact = number.quantize(Decimal(1).scaleb(-type.scale), context=WIDE)
    if exact != number or len(exact.as_tuple().digits) > type.precision:
        raise ValueError
    return exact


def _integer(bits: int) -> Callable[[Any], int]:
    most = 1 << (bits - 1)

    def fits(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -most <= value < most:
            raise ValueError
        return value

    return fits


def _floating(most: float | None) -> Callable[[Any], float]:
    def fits(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | Decimal):
            raise ValueError
        found = float(value)
        if found in (float("inf"), float("-inf")) or (most is not None and abs(found) > most):
            raise ValueError
        return found

    return fits


def _exactly(kind: type[Any]) -> Callable[[Any], Any]:
    return lambda value: _instance(value, kind)


def _timestamp(value: Any) -> datetime:
    found = datetime.fromisoformat(_instance(value, str))
    return found if found.tzinfo is None else found.astimezone(UTC).replace(tzinfo=None)


_FITS: Mapping[str, Callable[[Any], Any]] = {
    "STRING": _exactly(str),
    "BOOL": _exactly(bool),
    "INT8": _integer(8),
    "INT16": _integer(16),
    "INT32": _integer(32),
    "INT64": _integer(64),
    "FLOAT": _floating(LARGEST_FLOAT),
    "DOUBLE": _floating(None),
    "DATE": lambda value: date.fromisoformat(_instance(value, str)),
    "TIMESTAMP": _timestamp,
    "UUID": lambda value: UUID(_instance(value, str)).bytes,
    "BLOB": lambda value: b64decode(_instance(value, str), validate=True),
}
