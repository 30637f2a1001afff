"""DECIMAL columns as text, because neither engine reads decimals from Parquet, and both cast text to them exactly."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paddock.declared_types import Type


def rewritten(file: str, types: Sequence[Type]) -> str:
    """The name of the new file; the old one is gone. Row group by row group, so that memory holds only one of them."""
    source, target = Path(file), Path(f"text-{file}")
    with pq.ParquetFile(source) as parquet, pq.ParquetWriter(target, _schema(parquet.schema_arrow)) as writer:
        for number in range(parquet.num_row_groups):
            writer.write_table(_table(parquet.read_row_group(number), writer.schema))
    source.unlink()
    return target.name


def _schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([pa.field(field.name, text_type(field.type)) for field in schema])


def _table(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = [as_text(column.combine_chunks()) for column in table.columns]
    return pa.Table.from_arrays(columns, schema=schema)


def text_type(type: pa.DataType) -> pa.DataType:
    if pa.types.is_decimal(type):
        return pa.string()
    if pa.types.is_struct(type):
        return pa.struct([pa.field(field.name, text_type(field.type)) for field in type])
    return type


def as_text(array: pa.Array) -> pa.Array:
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if pa.types.is_decimal(array.type):
        return _plain(array)
    if pa.types.is_struct(array.type) and text_type(array.type) != array.type:
        fields = [pa.field(field.name, text_type(field.type)) for field in array.type]
        inner = [as_text(child) for child in array.flatten()]
        return pa.StructArray.from_arrays(inner, fields=fields, mask=array.is_null())
    return array


def _plain(array: pa.Array) -> pa.Array:
    """Arrow writes very small ones with an exponent; those are written by Python."""
    text = array.cast(pa.string())
    powers = pc.match_substring(text, "E").fill_null(False)
    if not pc.any(powers).as_py():
        return text
    places = max(array.type.scale, 0)
    digits = pa.array([f"{value:.{places}f}" for value in array.filter(powers).to_pylist()], pa.string())
    return pc.replace_with_mask(text, powers, digits)
