"""What a declared type is in Arrow, and which types of an engine may become it.

Only what keeps every value exactly: wider integers, longer decimals, finer times. Anything else is a mismatch, named at
its column, with what to write in the query.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from paddock.engines.engine import Column
from paddock.exports.model import DeclaredColumn
from paddock.exports.types import Type, parse
from paddock.jobs.errors import PermanentRunnerError

SCALARS: dict[str, pa.DataType] = {
    "STRING": pa.string(),
    "INT8": pa.int8(),
    "INT16": pa.int16(),
    "INT32": pa.int32(),
    "INT64": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOL": pa.bool_(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us"),
    "UUID": pa.uuid(),
    "BLOB": pa.binary(),
}


@dataclass(frozen=True, slots=True)
class Mismatch:
    position: int
    column: str
    expected: str
    found: str
    hint: str


def arrow_of(type: Type) -> pa.DataType:
    if type.name == "DECIMAL":
        return pa.decimal128(type.precision, type.scale)
    if type.name == "LIST":
        return pa.list_(arrow_of(type.inner[0]))
    if type.name == "MAP":
        return pa.map_(arrow_of(type.inner[0]), arrow_of(type.inner[1]))
    if type.name == "STRUCT":
        inner = zip(type.fields, type.inner, strict=True)
        return pa.struct([pa.field(name, arrow_of(field)) for name, field in inner])
    return SCALARS[type.name]


def declared_name(column: Column) -> str:
    """The other way round: what a mapping would call it. For `parse`, which infers a definition from SQL."""
    return "UUID" if _is_uuid(column) else declared_type(column.type)


def _is_uuid(column: Column) -> bool:
    """Text like any other by its type alone; that each value is one, only the engine's own type can promise."""
    return column.native.lower() == "uuid"


def declared_type(type: pa.DataType) -> str:
    for name, arrow in SCALARS.items():
        if type == arrow:
            return name
    if pa.types.is_decimal(type):
        return f"DECIMAL({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "TIMESTAMP"
    if pa.types.is_map(type):
        return f"MAP({declared_type(type.key_type)}, {declared_type(type.item_type)})"
    if pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type):
        return f"LIST({declared_type(type.value_type)})"
    if pa.types.is_struct(type):
        return f"STRUCT({', '.join(f'{field.name} {declared_type(field.type)}' for field in type)})"
    if pa.types.is_binary(type) or pa.types.is_large_binary(type) or pa.types.is_fixed_size_binary(type):
        return "BLOB"
    if pa.types.is_unsigned_integer(type):
        return {8: "INT16", 16: "INT32", 32: "INT64"}.get(type.bit_width, "DECIMAL(20,0)")
    return "STRING"


def keeps_values(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of `found` is a value of `wanted`, by its type alone."""
    if found == wanted:
        return True
    if pa.types.is_integer(found) and pa.types.is_integer(wanted):
        signed = pa.types.is_signed_integer
        if signed(found) == signed(wanted):
            return bool(wanted.bit_width >= found.bit_width)
        return bool(signed(wanted) and wanted.bit_width > found.bit_width)
    if pa.types.is_floating(found) and pa.types.is_floating(wanted):
        return bool(wanted.bit_width >= found.bit_width)
    if pa.types.is_decimal(wanted):
        return _fits_decimal(found, wanted)
    if pa.types.is_timestamp(found) and pa.types.is_timestamp(wanted):
        # An instant as its time in UTC: the zone is the file's, not the value's.
        return found.tz in (None, "UTC") and (found.unit, wanted.unit) != ("ns", "us")
    if pa.types.is_string(wanted):
        return bool(pa.types.is_large_string(found) or found == pa.uuid())
    if pa.types.is_binary(wanted):
        return bool(pa.types.is_large_binary(found) or pa.types.is_fixed_size_binary(found))
    return _nested_keeps_values(found, wanted)


def _fits_decimal(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_decimal(found):
        whole = found.precision - found.scale
        return bool(wanted.scale >= found.scale and wanted.precision - wanted.scale >= whole)
    if pa.types.is_integer(found):
        digits = {8: 3, 16: 5, 32: 10, 64: 20}[found.bit_width]
        return bool(wanted.precision - wanted.scale >= digits - (pa.types.is_signed_integer(found) and digits == 20))
    return False


def _nested_keeps_values(found: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_map(found) and pa.types.is_map(wanted):
        return keeps_values(found.key_type, wanted.key_type) and keeps_values(found.item_type, wanted.item_type)
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return keeps_values(found.value_type, wanted.value_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        pairs = zip(found, wanted, strict=False)
        return found.num_fields == wanted.num_fields and all(keeps_values(one.type, two.type) for one, two in pairs)
    return False


def fits(found: Column, wanted: Type) -> bool:
    return (wanted.name == "UUID" and _is_uuid(found)) or keeps_values(found.type, arrow_of(wanted))


def mismatches(found: Sequence[Column], declared: Sequence[DeclaredColumn]) -> list[Mismatch]:
    """Position by position: the declaration counts, the query's own names do not."""
    wrong = []
    for position in range(max(len(found), len(declared))):
        if position >= len(found):
            one = declared[position]
            wrong.append(Mismatch(position, one.name, one.type, "nothing", "Add this column to the SELECT list."))
        elif position >= len(declared):
            extra = found[position]
            wrong.append(
                Mismatch(position, extra.name, "nothing", extra.native, "Leave it out, or declare a property for it.")
            )
        elif not fits(found[position], parse(declared[position].type)):
            one = declared[position]
            suggested = declared_name(found[position])
            hint = f"Cast it in the query to what {one.type} holds, or declare it as {suggested}."
            wrong.append(Mismatch(position, one.name, one.type, found[position].native, hint))
    return wrong


class Conform:
    """Gives a batch the declared types; exact or an error, never rounded."""

    def __init__(self, schema: pa.Schema, casts: Sequence[Callable[[pa.Array], pa.Array] | None]) -> None:
        self.schema = schema
        self._casts = casts

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            column if cast is None else cast(column) for column, cast in zip(batch.columns, self._casts, strict=True)
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def conformer(found: Sequence[Column], declared: Sequence[DeclaredColumn] | None) -> Conform:
    if declared is None:
        return Conform(pa.schema([pa.field(column.name, column.type) for column in found]), [None] * len(found))
    wrong = mismatches(found, declared)
    if wrong:
        told = "; ".join(f"{one.column}: expected {one.expected}, found {one.found}" for one in wrong[:5])
        raise PermanentRunnerError(
            f"The query does not give the declared columns: {told}.", code="column_mismatch", hint=wrong[0].hint
        )
    fields = [pa.field(column.name, arrow_of(parse(column.type))) for column in declared]
    pairs = zip(found, fields, strict=True)
    return Conform(pa.schema(fields), [None if one.type == field.type else _cast(field) for one, field in pairs])


def _cast(field: pa.Field) -> Callable[[pa.Array], pa.Array]:
    def cast(column: pa.Array) -> pa.Array:
        if pa.types.is_timestamp(column.type) and column.type.tz is not None:
            column = pc.local_timestamp(column)
        if pa.uuid() in (column.type, field.type):
            return _uuids(column) if field.type == pa.uuid() else _texts(column)
        try:
            return column.cast(field.type)
        except pa.ArrowInvalid as problem:
            raise PermanentRunnerError(
                f"A value of column '{field.name}' does not fit its declared type: {problem}.",
                code="value_does_not_fit",
                hint="Declare a wider type, or leave such rows out of the query.",
            ) from problem

    return cast


def _uuids(column: pa.Array) -> pa.Array:
    """From text that the engine itself calls uuids."""
    stored = [None if value is None else UUID(value).bytes for value in column.to_pylist()]
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array(stored, pa.binary(16)))


def _texts(column: pa.Array) -> pa.Array:
    return pa.array([None if value is None else str(value) for value in column.to_pylist()], pa.string())
