"""Tables of every type that an export can carry, and whether two of them are equal to the bit."""

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
from hypothesis import strategies as st

from paddock.exports.writing.text import is_list

EPOCH = date(1970, 1, 1)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
awkward = st.sampled_from(
    ["", '"', "a,b", "line\nend", "\r\n", "NULL", "=1+1", "\\", "\x00\x1f", "ß€😀", "null", " ", "0", "</x>"]
)


def integers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    low = -(2 ** (bits - 1)) if signed else 0
    return st.integers(low, low + 2**bits - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    most = 10**precision - 1
    # Made of its digits: arithmetic would round to the 28 digits of the context.
    return st.integers(-most, most).map(lambda digits: Decimal((int(digits < 0), _digits(digits), -scale)))


def _digits(number: int) -> tuple[int, ...]:
    return tuple(int(digit) for digit in str(abs(number)))


# Years that have a text.
SECONDS = st.integers(-62_135_596_800, 253_402_300_799)


# Whatever DuckDB does not take for infinite, or beyond.
DAYS = st.integers(-(2**31) + 3, 2**31 - 2)
MICROSECONDS = st.integers(-9_223_372_022_400_000_000, 2**63 - 2)


def ticks(unit: str) -> st.SearchStrategy[int]:
    if unit == "ns":
        return st.integers(-(2**63) + 2, 2**63 - 2)
    factor = 1_000_000
    return st.builds(lambda second, rest: second * factor + rest, SECONDS, st.integers(0, factor - 1))


def seconds() -> st.SearchStrategy[datetime]:
    return st.datetimes().map(lambda at: at.replace(microsecond=0))


# What pyarrow makes of such values is the column: a number is the ticks of a time.
Typed = tuple[pa.DataType, st.SearchStrategy[Any]]
decimal_types = st.integers(1, 38).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p)))
scalars: st.SearchStrategy[Typed] = st.one_of(
    *[st.just((getattr(pa, f"int{bits}")(), integers(bits))) for bits in (8, 16, 32, 64)],
    *[st.just((getattr(pa, f"uint{bits}")(), integers(bits, False))) for bits in (8, 16, 32, 64)],
    st.just((pa.float64(), st.floats())),
    st.just((pa.float32(), st.floats(width=32))),
    decimal_types.map(lambda ps: (pa.decimal128(*ps), decimals(*ps))),
    st.just((pa.string(), texts | awkward)),
    st.just((pa.large_string(), texts | awkward)),
    st.just((pa.binary(), st.binary(max_size=8))),
    st.just((pa.binary(3), st.binary(min_size=3, max_size=3))),
    st.just((pa.bool_(), st.booleans())),
    st.just((pa.date32(), st.dates().map(lambda day: (day - EPOCH).days))),
    *[st.just((pa.timestamp(unit, zone), ticks(unit))) for unit in ("us", "ns") for zone in (None, "UTC")],
    st.just((pa.time64("us"), st.integers(0, 86_399_999_999))),
    st.just((pa.null(), st.none())),
)
UUIDS = st.just((pa.uuid(), st.uuids().map(lambda value: value.bytes)))
# Years that have no text, what Parquet has another type for, what only engines of other packages give.
others: st.SearchStrategy[Typed] = st.one_of(
    st.integers(39, 76).map(lambda p: (pa.decimal256(p, p // 3), decimals(p, p // 3))),
    st.just((pa.date32(), DAYS)),
    *[st.just((pa.timestamp("us", zone), MICROSECONDS)) for zone in (None, "UTC")],
    *[st.just((pa.timestamp(unit, zone), seconds())) for unit in ("s", "ms") for zone in (None, "UTC")],
    st.just((pa.date64(), st.dates())),
    *[st.just((pa.time32(unit), st.times().map(lambda at: at.replace(microsecond=0)))) for unit in ("s", "ms")],
    st.just((pa.time64("ns"), st.integers(0, 86_399_999_999_999))),
    st.just((pa.large_binary(), st.binary(max_size=8))),
    UUIDS,
)
# Never inside of others: pyarrow builds no dictionaries there that are valid where a row is null.
alone: st.SearchStrategy[Typed] = st.one_of(
    *[st.just((pa.dictionary(index, pa.string()), texts | awkward)) for index in (pa.int8(), pa.int32())],
    st.just((pa.dictionary(pa.int16(), pa.int64()), integers(64))),
    st.just((pa.dictionary(pa.uint32(), pa.binary()), st.binary(max_size=4))),
)
names = st.sampled_from(["a", "b", "naïve", "with space", 'quo"te', "dot.ted"])


TEXT_KEYS: Sequence[Typed] = ((pa.string(), texts | awkward), (pa.int64(), integers(64)))
ANY_KEYS: Sequence[Typed] = (
    *TEXT_KEYS,
    (pa.bool_(), st.booleans()),
    (pa.date32(), DAYS),
    (pa.timestamp("us"), MICROSECONDS),
    (pa.decimal128(38, 9), decimals(38, 9)),
    (pa.binary(), st.binary(max_size=8)),
    (pa.uuid(), st.uuids().map(lambda value: value.bytes)),
)


def nested(inner: st.SearchStrategy[Typed], among: Sequence[Typed] = TEXT_KEYS) -> st.SearchStrategy[Typed]:
    keys = st.sampled_from(among)
    return st.one_of(
        inner.map(lambda of: (pa.list_(of[0]), st.lists(maybe(of[1]), max_size=3))),
        st.tuples(keys, inner).map(
            lambda kv: (
                pa.map_(kv[0][0], kv[1][0]),
                st.lists(st.tuples(kv[0][1], maybe(kv[1][1])), max_size=3, unique_by=lambda entry: entry[0]),
            )
        ),
        st.dictionaries(names, inner, min_size=1, max_size=3).map(
            lambda fields: (
                pa.struct([(name, of[0]) for name, of in fields.items()]),
                st.fixed_dictionaries({name: maybe(of[1]) for name, of in fields.items()}),
            )
        ),
    )


def maybe(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def any_nested(inner: st.SearchStrategy[Typed]) -> st.SearchStrategy[Typed]:
    return st.one_of(
        nested(inner, ANY_KEYS),
        inner.map(lambda of: (pa.large_list(of[0]), st.lists(maybe(of[1]), max_size=3))),
        inner.map(lambda of: (pa.list_(of[0], 2), st.lists(maybe(of[1]), min_size=2, max_size=2))),
    )


# What every format holds, and all that Parquet does.
types = st.recursive(scalars, nested, max_leaves=4)
any_types = st.recursive(scalars | others, any_nested, max_leaves=6) | alone


def _read_exactly(typed: Typed) -> bool:
    """DuckDB itself makes a float of more than 38 digits, and microseconds of instants in nanoseconds."""
    return not pa.types.is_decimal256(typed[0]) and typed[0] != pa.timestamp("ns", "UTC")


# All that DuckDB reads from a file as it is.
duckdb_types = st.recursive((scalars | others).filter(_read_exactly), any_nested, max_leaves=6) | alone


def by_duckdb(type: pa.DataType) -> pa.DataType:
    """What a column that DuckDB read from a file becomes in an export."""
    if type == pa.uuid() or pa.types.is_large_string(type):
        return pa.string()
    if pa.types.is_fixed_size_binary(type) or pa.types.is_large_binary(type):
        return pa.binary()
    if pa.types.is_null(type):
        return pa.int32()
    if pa.types.is_dictionary(type):
        return by_duckdb(type.value_type)
    if pa.types.is_timestamp(type) and type.unit in ("s", "ms"):
        return pa.timestamp("us", type.tz)
    if pa.types.is_time32(type):
        return pa.time64("us")
    if pa.types.is_date64(type):
        return pa.date32()
    return pa.list_(by_duckdb(type.value_type)) if is_list(type) else _inside(type, by_duckdb)


def in_files(type: pa.DataType) -> pa.DataType:
    """What the type of a column is in Parquet: another unit where Parquet has none, and never how it was encoded."""
    if pa.types.is_dictionary(type):
        return type.value_type
    if type == pa.time32("s"):
        return pa.time32("ms")
    if type == pa.date64():
        return pa.date32()
    if pa.types.is_timestamp(type) and type.unit == "s":
        return pa.timestamp("ms", type.tz)
    return _inside(type, in_files)


def _inside(type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    if pa.types.is_struct(type):
        return pa.struct([(field.name, change(field.type)) for field in type])
    if pa.types.is_map(type):
        return pa.map_(change(type.key_type), change(type.item_type))
    if pa.types.is_fixed_size_list(type):
        return pa.list_(change(type.value_type), type.list_size)
    if pa.types.is_large_list(type):
        return pa.large_list(change(type.value_type))
    return pa.list_(change(type.value_type)) if pa.types.is_list(type) else type


@st.composite
def tables(draw: st.DrawFn, of: st.SearchStrategy[Typed] = types) -> pa.Table:
    columns = draw(st.lists(of, min_size=1, max_size=4))
    rows = draw(st.integers(0, 30))
    schema = pa.schema([(f"c{number}", type) for number, (type, _) in enumerate(columns)])
    arrays = [array_of(draw(st.lists(maybe(values), min_size=rows, max_size=rows)), type) for type, values in columns]
    return pa.Table.from_arrays(arrays, schema=schema)


def array_of(values: list[Any], type: pa.DataType) -> pa.Array:
    """By way of the bytes: Arrow's builders make no UUIDs inside of other types."""
    stored = _stored(type)
    return pa.array(values, type) if stored == type else pa.array(values, stored).cast(type)


def _stored(type: pa.DataType) -> pa.DataType:
    return pa.binary(16) if type == pa.uuid() else _inside(type, _stored)


def same(left: pa.Table, right: pa.Table) -> bool:
    """Equal to the bit: NaN is NaN, and -0.0 is not 0.0."""
    return left.num_rows == right.num_rows and all(
        _exact(ours) == _exact(theirs)
        for a, b in zip(left.columns, right.columns, strict=True)
        for ours, theirs in zip(plain(a), plain(b), strict=True)
    )


NANOSECONDS = {"D": 86_400 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}


def plain(column: pa.ChunkedArray) -> list[Any]:
    return [_value(scalar) for scalar in column]


def _value(scalar: pa.Scalar) -> Any:
    """`as_py`, but a time is a number: Python has no nanoseconds, and no years beyond 9999."""
    type = scalar.type
    if not scalar.is_valid or pa.types.is_null(type):
        return None
    if pa.types.is_dictionary(type):
        return _value(scalar.value)
    if pa.types.is_temporal(type):
        return scalar.value * NANOSECONDS["D" if pa.types.is_date32(type) else getattr(type, "unit", "ms")]
    if pa.types.is_struct(type):
        return {name: _value(scalar[name]) for name in scalar}
    if pa.types.is_map(type):
        return [(_value(entry["key"]), _value(entry["value"])) for entry in scalar.values]
    if is_list(type):
        return [_value(element) for element in scalar.values]
    return scalar.as_py()


def _exact(value: Any) -> Any:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, float):
        return ("float", "nan" if math.isnan(value) else value.hex())
    if isinstance(value, list | tuple):
        return [_exact(of) for of in value]
    if isinstance(value, dict):
        return {name: _exact(of) for name, of in value.items()}
    return value
