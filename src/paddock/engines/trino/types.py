"""What each Trino type becomes: one Arrow type, declared by the server's `typeSignature` and never guessed from values.

`TYPES` is the whole table; the guide of types is made from it. What the wire cannot carry exactly (a wall clock with
the name of its zone, maps whose keys are not scalars) is cast by the server first: see `awkward` and `wrap`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from paddock.engines.children.quoting import quoted
from paddock.engines.engine import Column, QueryRefused
from paddock.engines.trino.casting import awkward as awkward
from paddock.engines.trino.casting import awkward_key
from paddock.engines.trino.casting import wrap as wrap
from paddock.engines.trino.signature import Signature, parse, spelled

# How a value looks on the wire, and so who reads it.
Wire = Literal[
    "boolean",
    "integer",
    "float",
    "decimal",
    "text",
    "base64",
    "date",
    "time",
    "timestamp",
    "zoned",
    "months",
    "milliseconds",
    "uuid",
    "array",
    "map",
    "row",
]

# Nanoseconds are the finest that Arrow and Parquet can say.
FINEST = 9


@dataclass(frozen=True, slots=True)
class TrinoColumn(Column):
    signature: Signature


@dataclass(frozen=True, slots=True)
class TrinoType:
    """One line of the table. `example` is a signature that shows it."""

    raw: str
    wire: Wire
    arrow: Callable[[Signature], pa.DataType]
    example: Signature
    parquet: str
    note: str = ""


def column_of(column: Mapping[str, Any]) -> TrinoColumn:
    """Of one entry of a page's `columns`. Types that cannot be exported get a column too (metadata shows them):
    `check` is what refuses them."""
    signature = parse(column["typeSignature"])
    return TrinoColumn(column["name"], arrow_type(signature), spelled(signature), signature)


def arrow_type(signature: Signature) -> pa.DataType:
    known = BY_NAME.get(signature.raw)
    return known.arrow(signature) if known else pa.string()


def check(columns: Iterable[TrinoColumn]) -> None:
    """Raises for the first column that no file could hold exactly."""
    for column in columns:
        if cast := _too_fine(column.signature):
            raise QueryRefused(
                f"Column '{column.name}' is {column.native}: files hold at most {FINEST} digits of a second, and "
                "Paddock does not round.",
                code="type_refused",
                hint=f"Write CAST({quoted(column.name)} AS {spelled(cast)}) in the query if losing the rest is fine.",
            )
        if unknown := _unknown(column.signature):
            raise QueryRefused(
                f"Column '{column.name}' is {column.native}, and Paddock does not know the type {unknown.raw}.",
                code="type_refused",
                hint=f"Write CAST({quoted(column.name)} AS varchar) in the query, or leave the column out.",
            )


def field_names(signature: Signature) -> list[str]:
    """Of a row's fields: `field0` where there is no name, `a_1` where one repeats, as for columns of a file."""
    taken: set[str] = set()
    names: list[str] = []
    for position, given in enumerate(signature.names):
        name = wanted = given or f"field{position}"
        count = 0
        while name in taken or (count and name in signature.names):
            count += 1
            name = f"{wanted}_{count}"
        taken.add(name)
        names.append(name)
    return names


def _too_fine(signature: Signature) -> Signature | None:
    """The type to cast to, if any part of this one is finer than files can say."""
    known = BY_NAME.get(signature.raw)
    if known and known.wire in ("time", "timestamp", "zoned"):
        return Signature(signature.raw, (FINEST,)) if signature.precision > FINEST else None
    parts = [_too_fine(child) for child in signature.children]
    if not any(parts):
        return None
    children = tuple(part or child for part, child in zip(parts, signature.children, strict=True))
    return Signature(signature.raw, signature.numbers, children, signature.names)


def _unknown(signature: Signature) -> Signature | None:
    known = BY_NAME.get(signature.raw)
    if known is None:
        return signature
    inside = signature.children if known.wire in ("array", "map", "row") else ()
    return next(filter(None, map(_unknown, inside)), None)


def _always(type_: pa.DataType) -> Callable[[Signature], pa.DataType]:
    return lambda signature: type_


def _decimal(signature: Signature) -> pa.DataType:
    precision, scale = signature.numbers
    return pa.decimal128(precision, scale)


def _time(signature: Signature) -> pa.DataType:
    if signature.precision <= 3:
        return pa.time32("ms")
    return pa.time64("us" if signature.precision <= 6 else "ns")


def _timestamp(signature: Signature) -> pa.DataType:
    return pa.timestamp("us" if signature.precision <= 6 else "ns")


def _zoned(signature: Signature) -> pa.DataType:
    return pa.timestamp("us" if signature.precision <= 6 else "ns", tz="UTC")


def _array(signature: Signature) -> pa.DataType:
    return pa.list_(arrow_type(signature.children[0]))


def _map(signature: Signature) -> pa.DataType:
    """Where the key is awkward: what `wrap` makes of the map, so that a description and its result agree."""
    key, value = map(arrow_type, signature.children)
    if awkward_key(signature):
        return pa.list_(pa.struct([pa.field("key", key), pa.field("value", value)]))
    return pa.map_(key, value)


def _row(signature: Signature) -> pa.DataType:
    types = map(arrow_type, signature.children)
    return pa.struct([pa.field(name, type_) for name, type_ in zip(field_names(signature), types, strict=True)])


def _plain(raw: str, wire: Wire, arrow: pa.DataType, parquet: str, note: str = "") -> TrinoType:
    return TrinoType(raw, wire, _always(arrow), Signature(raw), parquet, note)


_BIGINT, _VARCHAR = Signature("bigint"), Signature("varchar", (_LENGTH := 10,))
_DIGEST = "the digest's bytes"

TYPES: Sequence[TrinoType] = (
    _plain("boolean", "boolean", pa.bool_(), "BOOLEAN"),
    _plain("tinyint", "integer", pa.int8(), "INT32 (INT 8)"),
    _plain("smallint", "integer", pa.int16(), "INT32 (INT 16)"),
    _plain("integer", "integer", pa.int32(), "INT32"),
    _plain("bigint", "integer", pa.int64(), "INT64"),
    _plain("real", "float", pa.float32(), "FLOAT", "read straight to 32 bits; NaN, infinities and -0.0 kept"),
    _plain("double", "float", pa.float64(), "DOUBLE", "NaN, infinities and -0.0 kept"),
    TrinoType("decimal", "decimal", _decimal, Signature("decimal", (18, 2)), "DECIMAL", "exact, never through a float"),
    _plain("number", "text", pa.string(), "STRING", "its precision has no bound; cast to decimal(p,s) for a number"),
    TrinoType("varchar", "text", _always(pa.string()), _VARCHAR, "STRING"),
    TrinoType("char", "text", _always(pa.string()), Signature("char", (_LENGTH,)), "STRING", "padded with spaces"),
    _plain("varbinary", "base64", pa.binary(), "BYTE_ARRAY"),
    _plain("json", "text", pa.string(), "STRING", "the JSON text"),
    _plain("variant", "text", pa.string(), "STRING", "the JSON text"),
    _plain("date", "date", pa.date32(), "DATE", "all years, also before 1 and after 9999"),
    TrinoType("time", "time", _time, Signature("time", (6,)), "TIME", "ms up to 3 digits, us up to 6, ns up to 9"),
    TrinoType(
        "time with time zone",
        "text",
        _always(pa.string()),
        Signature("time with time zone", (6,)),
        "STRING",
        "as Trino writes it, `12:34:56.789+05:30`: files have no such type",
    ),
    TrinoType(
        "timestamp",
        "timestamp",
        _timestamp,
        Signature("timestamp", (6,)),
        "TIMESTAMP (not adjusted to UTC)",
        "us up to 6 digits; 7 to 9: ns, which reach from 1677 to 2262; more digits are refused",
    ),
    TrinoType(
        "timestamp with time zone",
        "zoned",
        _zoned,
        Signature("timestamp with time zone", (6,)),
        "TIMESTAMP (adjusted to UTC)",
        "the same instant in UTC, converted by the server; the zone's name is not kept",
    ),
    _plain("interval year to month", "months", pa.int32(), "INT32", "months"),
    _plain("interval day to second", "milliseconds", pa.int64(), "INT64", "milliseconds"),
    _plain("uuid", "uuid", pa.uuid(), "UUID (16 bytes)"),
    _plain("ipaddress", "text", pa.string(), "STRING"),
    TrinoType("array", "array", _array, Signature("array", (), (_BIGINT,)), "LIST"),
    TrinoType(
        "map",
        "map",
        _map,
        Signature("map", (), (_VARCHAR, _BIGINT)),
        "MAP",
        "a list of key and value where the key is binary, an array, a map or a row: the server makes it one",
    ),
    TrinoType(
        "row",
        "row",
        _row,
        Signature("row", (), (_BIGINT, _VARCHAR), ("id", "name")),
        "group",
        "a field without a name is `field0`; a repeated name `a` becomes `a_1`",
    ),
    _plain("Geometry", "text", pa.string(), "STRING", "well-known text"),
    _plain("SphericalGeography", "text", pa.string(), "STRING", "well-known text"),
    _plain("HyperLogLog", "base64", pa.binary(), "BYTE_ARRAY", _DIGEST),
    _plain("P4HyperLogLog", "base64", pa.binary(), "BYTE_ARRAY", _DIGEST),
    _plain("SetDigest", "base64", pa.binary(), "BYTE_ARRAY", _DIGEST),
    _plain("tdigest", "base64", pa.binary(), "BYTE_ARRAY", _DIGEST),
    TrinoType(
        "qdigest",
        "base64",
        _always(pa.binary()),
        Signature("qdigest", (), (_BIGINT,)),
        "BYTE_ARRAY",
        _DIGEST,
    ),
    _plain("unknown", "text", pa.string(), "STRING", "only NULL: a column of no type breaks readers"),
)

BY_NAME: Mapping[str, TrinoType] = {known.raw: known for known in TYPES}
