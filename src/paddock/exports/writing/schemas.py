"""The schema of the files, from the schema of the query: names unique, types such as files can hold."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from paddock.exports.writing.lines import lines_of
from paddock.exports.writing.names import file_names
from paddock.exports.writing.options import Format, OutputOptions
from paddock.exports.writing.text import is_list
from paddock.jobs.errors import UserMistake


def file_schema(schema: pa.Schema) -> pa.Schema:
    """No metadata: an engine's own (pandas' above all) would make readers guess."""
    names = file_names(schema.names)
    return pa.schema(
        [
            pa.field(name, _file_type(name, field.type), field.nullable)
            for name, field in zip(names, schema, strict=True)
        ]
    )


def check_schema(schema: pa.Schema, file_format: Format, options: OutputOptions) -> None:
    """A type that the format cannot hold is found before the first row: by trying, with none."""
    if _refusal(schema, file_format, options) is None:
        return
    for field in schema:
        if (problem := _refusal(pa.schema([field]), file_format, options)) is not None:
            raise UserMistake(
                f"Column '{field.name}' has the type {field.type}, which a {file_format} file cannot hold: {problem}",
                code="type_not_written",
                hint="Cast it in the query, for example to text.",
            )


def _refusal(schema: pa.Schema, file_format: Format, options: OutputOptions) -> Exception | None:
    try:
        _try(schema, file_format, options)
    except (pa.ArrowException, OSError) as problem:
        return problem
    return None


def _try(schema: pa.Schema, file_format: Format, options: OutputOptions) -> None:
    # Arrow's own builders know no extension type inside of another (a list of uuids): no nulls can be of every type.
    nothing = pa.RecordBatch.from_arrays([pa.nulls(0, type) for type in schema.types], schema=schema)
    if file_format != "parquet":
        lines_of(file_format, options).of(nothing)
        return
    with pq.ParquetWriter(io.BytesIO(), schema, version="2.6") as writer:
        writer.write_batch(nothing)


def _file_type(column: str, type: pa.DataType) -> pa.DataType:
    """Parquet has no seconds and no dates in milliseconds: they become what it has, exactly. How the engine encoded a
    column is not its type: which ones get a dictionary is the writer's to choose."""
    if pa.types.is_dictionary(type):
        return _file_type(column, type.value_type)
    if pa.types.is_timestamp(type) and type.unit == "s":
        return pa.timestamp("ms", type.tz)
    if pa.types.is_time32(type) and type.unit == "s":
        return pa.time32("ms")
    if pa.types.is_date64(type):
        return pa.date32()
    if pa.types.is_struct(type):
        return _struct(column, type)
    if pa.types.is_map(type):
        return pa.map_(_file_type(column, type.key_type), _field(column, type.item_field))
    if pa.types.is_fixed_size_list(type):
        return pa.list_(_field(column, type.value_field), type.list_size)
    if pa.types.is_large_list(type):
        return pa.large_list(_field(column, type.value_field))
    if is_list(type):
        return pa.list_(_field(column, type.value_field))
    return type


def _struct(column: str, type: pa.DataType) -> pa.DataType:
    names = [field.name for field in type]
    if file_names(names) != names:
        raise UserMistake(
            f"The rows in column '{column}' name a field twice or not at all: {', '.join(map(repr, names))}.",
            code="repeated_field",
            hint="Give every field a name of its own by a cast in the query.",
        )
    return pa.struct([_field(column, field) for field in type])


def _field(column: str, field: pa.Field) -> pa.Field:
    return pa.field(field.name, _file_type(column, field.type), field.nullable)
