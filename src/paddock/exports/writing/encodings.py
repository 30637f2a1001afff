"""How the columns without a dictionary are encoded.

`plain`, the default, is what every reader knows. `delta` writes whole numbers, dates and times as differences: files are
a tenth smaller and take less time to write. Arrow, DuckDB, polars, Trino and Spark read all of it; the graph engines of
Kùzu's family only 32 and 64 bits wide, at the top of a schema, and only as long as numbers stay within 62 bits: beyond,
they read others without a word. So nothing else is written so, and a row group with a larger number begins another file
(`fits`). fastparquet reads other numbers, also without a word: why nobody gets this encoding without asking for it. `compact` also keeps the lengths of texts apart and splits floats by their bytes, for readers that are known to
understand it: Spark's is none before 4, and none for floats.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from paddock.exports.writing.options import OutputOptions
from paddock.exports.writing.text import is_text

MOST = 1 << 62
# A decimal of so many digits is an integer in the file.
DIGITS = 18


def encodings(first: pa.Table, dictionary: Sequence[str], options: OutputOptions) -> dict[str, str]:
    """Of columns by name, where it is not the plain one. `first` is what will be written first."""
    if options.encoding == "plain":
        return {}
    chosen = {}
    for field, column in zip(first.schema, first.columns, strict=True):
        encoding = _encoding(field.type, compact=options.encoding == "compact")
        # A dot would also name a field inside another column, which may be of another type.
        if encoding is not None and "." not in field.name and field.name not in dictionary and _within(column):
            chosen[field.name] = encoding
    return chosen


def fits(table: pa.Table, chosen: Mapping[str, str]) -> bool:
    return all(_within(table[name]) for name in chosen)


def _encoding(type: pa.DataType, *, compact: bool) -> str | None:
    if _is_number(type) or (pa.types.is_decimal(type) and type.precision <= DIGITS):
        return "DELTA_BINARY_PACKED"
    if compact and pa.types.is_floating(type) and not pa.types.is_float16(type):
        return "BYTE_STREAM_SPLIT"
    if compact and (is_text(type) or pa.types.is_binary(type) or pa.types.is_large_binary(type)):
        return "DELTA_LENGTH_BYTE_ARRAY"
    return None


def _is_number(type: pa.DataType) -> bool:
    return bool(pa.types.is_int32(type) or pa.types.is_int64(type) or pa.types.is_temporal(type))


def _within(column: pa.ChunkedArray) -> bool:
    if not (_is_number(column.type) and column.type.bit_width == 64):
        return True
    found = pc.min_max(column.cast(pa.int64())).as_py()
    return found["min"] is None or (found["min"] >= -MOST and found["max"] < MOST)
