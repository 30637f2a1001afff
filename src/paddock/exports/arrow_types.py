"""Which types of an engine may become a declared type.

Only what keeps every value exactly: wider integers, longer decimals, finer times. Anything else is a mismatch, named at
its column, with what to write in the query.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from paddock.declared_arrow import SCALARS, arrow_of
from paddock.declared_types import Type, parse
from paddock.engines.children.wire import is_marked_uuid
from paddock.engines.engine import Column
from paddock.exports.converting import converted
from paddock.exports.model import DeclaredColumn
from paddock.exports.writing.text import is_list
from paddock.jobs.errors import UserMistake


@dataclass(frozen=True, slots=True)
class Mismatch:
    position: int
    column: str
    expected: str
    found: str
    hint: str


@dataclass(frozen=True, slots=True)
class OtherName:
    position: int
    column: str
    found: str
    message: str


def declared_name(column: Column) -> str:
    """The other way round: what a mapping would call it. For `parse`, which infers a definition from SQL."""
    return declared_type(_exact_type(column))


def _exact_type(column: Column) -> pa.DataType:
    """With uuids where the engine sends text that it calls uuids. Text like any other by its type alone; that each value
    is one, only the engine's own type can promise."""
    return pa.uuid() if column.native.lower() == "uuid" else _with_uuids(column.type)


def _with_uuids(type: pa.DataType) -> pa.DataType:
    def inside(field: pa.Field) -> pa.Field:
        return pa.field(field.name, pa.uuid() if is_marked_uuid(field) else _with_uuids(field.type), field.nullable)

    if pa.types.is_struct(type):
        return pa.struct([inside(field) for field in type])
    if pa.types.is_map(type):
        return pa.map_(inside(type.key_field), inside(type.item_field))
    return pa.list_(inside(type.value_field)) if is_list(type) else type


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
    if is_list(type):
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
    if is_list(found) and is_list(wanted):
        return keeps_values(found.value_type, wanted.value_type)
    if pa.types.is_struct(found) and pa.types.is_struct(wanted):
        if found.num_fields != wanted.num_fields or swapped([one.name for one in found], [one.name for one in wanted]):
            return False
        return all(keeps_values(one.type, two.type) for one, two in zip(found, wanted, strict=True))
    return False


def fits(found: Column, wanted: Type) -> bool:
    return keeps_values(_exact_type(found), arrow_of(wanted))


def swapped(found: Sequence[str], declared: Sequence[str]) -> list[int]:
    """The places at which two names of both lists were exchanged. Without regard to case, as engines compare names."""
    ours, theirs = [name.lower() for name in declared], [name.lower() for name in found]
    return [
        place
        for place, (one, two) in enumerate(zip(theirs, ours, strict=False))
        if one != two and one in ours and two in theirs
    ]


def mismatches(found: Sequence[Column], declared: Sequence[DeclaredColumn]) -> list[Mismatch]:
    """Position by position: the declaration counts, the query's own names do not. Names that stand in each other's place
    are a mismatch all the same: where their types are alike, nothing else would tell."""
    wrong = []
    exchanged = swapped([column.name for column in found], [column.name for column in declared])
    for position in range(max(len(found), len(declared))):
        if position >= len(found):
            one = declared[position]
            wrong.append(Mismatch(position, one.name, one.type, "nothing", "Add this column to the SELECT list."))
        elif position >= len(declared):
            extra = found[position]
            wrong.append(
                Mismatch(position, extra.name, "nothing", extra.native, "Leave it out, or declare a property for it.")
            )
        elif position in exchanged:
            wrong.append(_misplaced(position, found[position], declared[position]))
        elif not fits(found[position], parse(declared[position].type)):
            one = declared[position]
            suggested = declared_name(found[position])
            hint = f"Cast it in the query to what {one.type} holds, or declare it as {suggested}."
            wrong.append(Mismatch(position, one.name, one.type, found[position].native, hint))
    return wrong


def _misplaced(position: int, found: Column, wanted: DeclaredColumn) -> Mismatch:
    return Mismatch(
        position,
        wanted.name,
        f"{wanted.name} {wanted.type}",
        f"{found.name} {found.native}",
        f"Position counts, and the query has '{wanted.name}' at another place: list its columns in the declared order, or"
        f" write AS {wanted.name} here if this is the one.",
    )


def other_names(found: Sequence[Column], declared: Sequence[DeclaredColumn]) -> list[OtherName]:
    """Columns that the query calls something else, which is no mistake by itself: `mismatches` has those that are."""
    exchanged = swapped([column.name for column in found], [column.name for column in declared])
    return [
        OtherName(
            position,
            wanted.name,
            one.name,
            f"The query calls it '{one.name}': position counts, so its values become '{wanted.name}'.",
        )
        for position, (one, wanted) in enumerate(zip(found, declared, strict=False))
        if one.name.lower() != wanted.name.lower() and position not in exchanged
    ]


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
        raise UserMistake(
            f"The query does not give the declared columns: {told}.", code="column_mismatch", hint=wrong[0].hint
        )
    fields = [pa.field(column.name, arrow_of(parse(column.type))) for column in declared]
    pairs = zip(found, fields, strict=True)
    return Conform(pa.schema(fields), [None if one.type == field.type else _cast(field) for one, field in pairs])


def _cast(field: pa.Field) -> Callable[[pa.Array], pa.Array]:
    def cast(column: pa.Array) -> pa.Array:
        try:
            return converted(column, field.type)
        except (pa.ArrowInvalid, ValueError) as problem:
            raise UserMistake(
                f"A value of column '{field.name}' does not fit its declared type: {problem}.",
                code="value_does_not_fit",
                hint="Declare a wider type, or leave such rows out of the query.",
            ) from problem

    return cast
