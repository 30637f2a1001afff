"""From the texts of a column to its type: what both decoders share.

Each function takes a string array and raises ValueError (Arrow's errors are) for a text that no server sends. The
quick way is Arrow's own cast; what it refuses (years before 0 and after 9999) is read one by one, strictly.
"""

import binascii
import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from paddock.engines.trino.decoding.problems import Beyond, Zoned
from paddock.engines.trino.signature import Signature
from paddock.engines.trino.types import BY_NAME, arrow_type

FromTexts = Callable[[pa.Array], pa.Array]

# Java writes a sign only outside the years 0 to 9999.
_DATE = re.compile(r"(\d{4}|-\d{4,}|\+\d{5,})-(\d\d)-(\d\d)", re.ASCII)
_CLOCK = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?", re.ASCII)
_MONTHS = re.compile(r"(-?)(\d+)-(\d+)", re.ASCII)
_MILLISECONDS = re.compile(r"(-?)(\d+) (\d\d):(\d\d):(\d\d)\.(\d{3})", re.ASCII)
_DIGITS = {"us": 6, "ns": 9}
_MONTH_DAYS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_NO_UUID = "00000000-0000-0000-0000-000000000000"


def from_texts(signature: Signature) -> FromTexts:
    """For every type that travels as a string."""
    wire = BY_NAME[signature.raw].wire
    type_ = arrow_type(signature)
    readers: dict[str, FromTexts] = {
        "text": lambda texts: texts,
        "decimal": lambda texts: texts.cast(type_),
        "base64": lambda texts: _each(texts, _bytes, type_),
        "date": _dates,
        "time": lambda texts: _times(texts, type_),
        "timestamp": lambda texts: _timestamps(texts, type_.unit),
        "zoned": lambda texts: _instants(texts, type_),
        "months": lambda texts: _each(texts, _months, type_),
        "milliseconds": lambda texts: _each(texts, _milliseconds, type_),
        "uuid": _uuids,
    }
    return readers[wire]


def from_keys(signature: Signature) -> FromTexts:
    """For the keys of maps: always text, whatever their type."""
    wire = BY_NAME[signature.raw].wire
    type_ = arrow_type(signature)
    if wire == "boolean":
        return lambda texts: _each(texts, {"true": True, "false": False}.__getitem__, type_)
    if wire in ("integer", "float"):
        return lambda texts: texts.cast(type_)
    return from_texts(signature)


def _each(texts: pa.Array, read: Callable[[str], Any], type_: pa.DataType) -> pa.Array:
    return pa.array([None if text is None else read(text) for text in texts.to_pylist()], type_)


def _matched(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError("not in the form that Trino writes")
    return match


def _bytes(text: str) -> bytes:
    return binascii.a2b_base64(text, strict_mode=True)


def _dates(texts: pa.Array) -> pa.Array:
    try:
        return texts.cast(pa.date32())
    except pa.ArrowInvalid:
        return _each(texts, _day, pa.int32()).view(pa.date32())


def _day(text: str) -> int:
    """Days since 1970-01-01 in the Gregorian calendar as if it had always been (Java's LocalDate)."""
    year, month, day = map(int, _matched(_DATE, text).groups())
    leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not 1 <= month <= 12 or not 1 <= day <= _MONTH_DAYS[month - 1] + (leap and month == 2):
        raise ValueError("no such day")
    # Years that begin in March have their leap day last.
    shifted = year - (month <= 2)
    era_days = 365 * shifted + shifted // 4 - shifted // 100 + shifted // 400
    return era_days + (153 * ((month + 9) % 12) + 2) // 5 + day - 1 - 719468


def _times(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    """Arrow reads no times of day, but it reads those of one day."""
    moments = pc.binary_join_element_wise("1970-01-01", texts, " ")
    return moments.cast(pa.timestamp(type_.unit)).cast(type_)


def _timestamps(texts: pa.Array, unit: str) -> pa.Array:
    try:
        return texts.cast(pa.timestamp(unit))
    except pa.ArrowInvalid:
        return _each(texts, lambda text: _moment(text, _DIGITS[unit]), pa.int64()).view(pa.timestamp(unit))


def _moment(text: str, digits: int) -> int:
    date, _, clock = text.partition(" ")
    hour, minute, second, fraction = _matched(_CLOCK, clock).groups(default="")
    if int(hour) > 23 or int(minute) > 59 or int(second) > 59 or len(fraction) > digits:
        raise ValueError("no such time")
    seconds = ((_day(date) * 24 + int(hour)) * 60 + int(minute)) * 60 + int(second)
    moment: int = seconds * 10**digits + int(fraction.ljust(digits, "0"))
    if not -(1 << 63) <= moment < 1 << 63:
        raise Beyond
    return moment


def _instants(texts: pa.Array, type_: pa.DataType) -> pa.Array:
    if not pc.all(pc.ends_with(texts, " UTC"), min_count=0).as_py():
        raise Zoned
    return _timestamps(pc.utf8_slice_codeunits(texts, 0, -4), type_.unit).view(type_)


def _months(text: str) -> int:
    sign, years, months = _matched(_MONTHS, text).groups()
    return (int(years) * 12 + int(months)) * (-1 if sign else 1)


def _milliseconds(text: str) -> int:
    sign, *parts = _matched(_MILLISECONDS, text).groups()
    days, hours, minutes, seconds, thousandths = map(int, parts)
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000 + thousandths
    return -total if sign else total


def _uuids(texts: pa.Array) -> pa.Array:
    """All at once: their texts are of one length, and so are they."""
    if not pc.all(pc.equal(pc.binary_length(texts), len(_NO_UUID)), min_count=0).as_py():
        raise ValueError("no uuid")
    digits = "".join(pc.fill_null(texts, _NO_UUID).to_pylist()).replace("-", "")
    data = pa.py_buffer(bytes.fromhex(digits))
    if data.size != 16 * len(texts):
        raise ValueError("no uuid")
    validity = texts.is_valid() if texts.null_count else None
    bitmap = validity.buffers()[1] if validity is not None else None
    storage = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(texts), [bitmap, data])
    return pa.ExtensionArray.from_storage(pa.uuid(), storage)
