"""What each PostgreSQL type becomes: one Arrow type, declared by the server's description and never guessed from values.

`TYPES` is the whole table of `pg_catalog`; the guide of types is made from it. A domain is its base type, an array a
list of its element's type. Enums, composites, ranges and the types of extensions are the text PostgreSQL prints.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pyarrow as pa

from paddock.engines.engine import Column

# How the text of a value is read: by the CSV reader itself, or from its text afterwards.
Wire = Literal["csv", "text", "decimal256", "uuid", "bytea", "array"]

NUMERIC = "numeric"
NO_MODIFIER = -1
# The header that a numeric's modifier is counted from, and the width of its scale.
_VARHDRSZ = 4
_SCALE_BITS = 0x7FF
_SCALE_SIGN = 0x400
_DECIMAL128, _DECIMAL256 = 38, 76


@dataclass(frozen=True, slots=True)
class PostgresType:
    """One line of the table. `arrow` is None where the modifier decides."""

    name: str
    wire: Wire
    arrow: pa.DataType | None
    parquet: str
    note: str = ""


def _text(*names: str, note: str = "") -> Iterable[PostgresType]:
    return (PostgresType(name, "text", pa.string(), "STRING", note) for name in names)


_YEARS = "years 1 to 9999; anything else, `infinity` too, fails and names the column"

TYPES: Sequence[PostgresType] = (
    PostgresType("bool", "csv", pa.bool_(), "BOOLEAN"),
    PostgresType("int2", "csv", pa.int16(), "INT(16)"),
    PostgresType("int4", "csv", pa.int32(), "INT32"),
    PostgresType("int8", "csv", pa.int64(), "INT64"),
    PostgresType("oid", "csv", pa.int64(), "INT64", "unsigned 32 bits in PostgreSQL"),
    PostgresType("xid", "csv", pa.int64(), "INT64", "unsigned 32 bits in PostgreSQL"),
    PostgresType("cid", "csv", pa.int64(), "INT64", "unsigned 32 bits in PostgreSQL"),
    PostgresType("xid8", "csv", pa.uint64(), "INT(64, unsigned)"),
    PostgresType("float4", "csv", pa.float32(), "FLOAT", "NaN, infinities and -0 are kept"),
    PostgresType("float8", "csv", pa.float64(), "DOUBLE", "NaN, infinities and -0 are kept"),
    PostgresType(
        NUMERIC,
        "csv",
        None,
        "DECIMAL(p,s)",
        "up to 76 digits, exact; without a precision, or beyond 76 digits, the text: cast to numeric(p,s) for a number; "
        "above 38 digits DuckDB reads the file's column as DOUBLE; "
        "NaN in a DECIMAL fails and names the column",
    ),
    *_text("text", "varchar", "name", "char"),
    *_text("bpchar", note="padded with spaces"),
    PostgresType("bytea", "bytea", pa.binary(), "BYTE_ARRAY"),
    PostgresType("date", "csv", pa.date32(), "DATE", _YEARS),
    PostgresType("time", "csv", pa.time64("us"), "TIME (us)", "24:00:00 fails and names the column"),
    *_text("timetz", note="`12:34:56.789+05:30`: files have no such type"),
    PostgresType("timestamp", "csv", pa.timestamp("us"), "TIMESTAMP (us, not adjusted to UTC)", _YEARS),
    PostgresType("timestamptz", "csv", pa.timestamp("us", "UTC"), "TIMESTAMP (us, adjusted to UTC)", _YEARS),
    *_text("interval", note="ISO 8601, `P1Y2M3DT4H5M6.7S`: months, days and seconds are kept apart"),
    PostgresType("uuid", "uuid", pa.uuid(), "UUID (16 bytes)"),
    *_text("json", "jsonb", note="the JSON text"),
    *_text("money", note="as the server's lc_monetary writes it; cast to numeric for a number"),
    *_text("inet", "cidr", "macaddr", "macaddr8", "bit", "varbit", "xml", "tsvector", "tsquery"),
    *_text("point", "line", "lseg", "box", "path", "polygon", "circle"),
    *_text("int2vector", "oidvector", "tid", "pg_lsn", "pg_snapshot", "txid_snapshot", "jsonpath", "refcursor"),
    *_text("regclass", "regproc", "regprocedure", "regoper", "regoperator", "regtype", "regrole", "regnamespace"),
    *_text("int4range", "int8range", "numrange", "daterange", "tsrange", "tstzrange"),
)

BY_NAME: Mapping[str, PostgresType] = {known.name: known for known in TYPES}
# Whatever is not in the table: enums, composites, other ranges, types of extensions.
AS_TEXT = PostgresType("*", "text", pa.string(), "STRING", "the text PostgreSQL prints")


@dataclass(frozen=True, slots=True)
class ServerType:
    """A row of pg_type."""

    oid: int
    name: str
    schema: str
    kind: str
    category: str
    delimiter: str
    element: int
    base: int
    base_modifier: int


@dataclass(frozen=True, slots=True)
class PostgresColumn(Column):
    wire: Wire
    # An array's element.
    element: "PostgresColumn | None" = None


def column_of(
    name: str, native: str, oid: int, modifier: int, server_types: Mapping[int, ServerType]
) -> PostgresColumn:
    found = server_types[oid]
    if found.kind == "d":
        inherited = found.base_modifier if modifier == NO_MODIFIER else modifier
        return column_of(name, native, found.base, inherited, server_types)
    known = BY_NAME.get(found.name) if found.schema == "pg_catalog" else None
    if known is not None and known.name == NUMERIC:
        return _numeric(name, native, modifier)
    if known is not None:
        return PostgresColumn(name, known.arrow, native, known.wire)
    if found.category == "A" and found.element in server_types:
        return _array(name, native, found, modifier, server_types)
    return PostgresColumn(name, AS_TEXT.arrow, native, AS_TEXT.wire)


def _array(
    name: str, native: str, found: ServerType, modifier: int, server_types: Mapping[int, ServerType]
) -> PostgresColumn:
    # Only box has another delimiter; its arrays stay text.
    if server_types[found.element].delimiter != ",":
        return PostgresColumn(name, AS_TEXT.arrow, native, AS_TEXT.wire)
    element = column_of(name, native, found.element, modifier, server_types)
    if element.wire == "array":
        return PostgresColumn(name, AS_TEXT.arrow, native, AS_TEXT.wire)
    return PostgresColumn(name, pa.list_(element.type), native, "array", element)


def _numeric(name: str, native: str, modifier: int) -> PostgresColumn:
    if modifier < _VARHDRSZ:
        return PostgresColumn(name, pa.string(), native, "text")
    precision, scale = numeric_modifier(modifier)
    # numeric(2,-3) holds 99000, numeric(3,5) holds 0.00999: Parquet wants 0 <= scale <= precision.
    precision, scale = (precision - scale, 0) if scale < 0 else (max(precision, scale), scale)
    if precision <= _DECIMAL128:
        return PostgresColumn(name, pa.decimal128(precision, scale), native, "csv")
    if precision <= _DECIMAL256:
        return PostgresColumn(name, pa.decimal256(precision, scale), native, "decimal256")
    return PostgresColumn(name, pa.string(), native, "text")


def numeric_modifier(modifier: int) -> tuple[int, int]:
    packed = modifier - _VARHDRSZ
    return (packed >> 16) & 0xFFFF, ((packed & _SCALE_BITS) ^ _SCALE_SIGN) - _SCALE_SIGN
