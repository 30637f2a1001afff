"""Which columns get a dictionary.

Arrow's default begins a dictionary for every column and gives up in the middle of a column of mostly different values;
the file is then larger, and took longer, than without any. So the distinct share of a few rows of the first row group
decides, and where it leaves a doubt, a trial: a larger sample is encoded both ways. A wrong guess costs size only:
where a dictionary grows beyond a page, the writer goes on without it.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from paddock.exports.writing.text import is_list, map_entries

ZSTD_LEVEL = 1
# Counting many different values is dearer than encoding them, so they are counted in fewer rows than are tried.
COUNTED = 16 << 10
TRIED = 64 << 10
# And of long values fewer: what is tried is copied, and the copies count beside the row group.
TRIED_BYTES = 2 << 20
# Spread over the rows: sorted input repeats its neighbours.
SLICES = 16
# Below so many values a share says nothing, and nothing much is lost either way.
FEW = 64
# Up to the first share a dictionary always pays, above the second never; in between it depends on how long the values
# are, how uneven, and how well zstd does without.
SURE = 0.05
NEVER = 0.8


def dictionary_columns(table: pa.Table) -> list[str]:
    """Paths of leaves, as the Parquet writer wants them."""
    return [path for path, array in _leaves_of(table) if _repeats(array)]


def _spread(rows: Any, most: int) -> list[Any]:
    """Slices of a table or an array, `most` rows together."""
    if len(rows) <= most:
        return [rows]
    size, step = most // SLICES, len(rows) // SLICES
    return [rows.slice(start * step, size) for start in range(SLICES)]


def _repeats(array: pa.Array) -> bool:
    if not _countable(array.type):
        return False
    few = pa.concat_arrays(_spread(array, COUNTED))
    values = len(few) - few.null_count
    if values < FEW:
        return False
    share = pc.count_distinct(few, mode="only_valid").as_py() / values
    return bool(share <= SURE or (share <= NEVER and _size(array, True) < _size(array, False)))


def _countable(type: pa.DataType) -> bool:
    return not (pa.types.is_boolean(type) or pa.types.is_null(type) or pa.types.is_float16(type))


def _size(array: pa.Array, dictionary: bool) -> int:
    sink = pa.MockOutputStream()
    pq.write_table(
        pa.table({"leaf": array}),
        sink,
        use_dictionary=dictionary,
        compression="zstd",
        compression_level=ZSTD_LEVEL,
        store_decimal_as_integer=True,
        write_statistics=False,
    )
    return int(sink.size())


def _leaves_of(table: pa.Table) -> Iterator[tuple[str, pa.Array]]:
    """Of some rows, spread over the table."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        most = min(TRIED, len(column) * TRIED_BYTES // max(column.nbytes, 1))
        chunks = [chunk for some in _spread(column, max(most, SLICES)) for chunk in some.chunks]
        yield from _leaves(name, pa.concat_arrays(chunks) if chunks else pa.array([], column.type))


def _leaves(path: str, array: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    type = array.type
    if isinstance(type, pa.BaseExtensionType):
        yield from _leaves(path, array.storage)
    elif pa.types.is_dictionary(type):
        yield from _leaves(path, array.dictionary_decode())
    elif pa.types.is_struct(type):
        for field, child in zip(type, array.flatten(), strict=True):
            yield from _leaves(f"{path}.{field.name}", child)
    elif pa.types.is_map(type):
        _, keys, values = map_entries(array)
        yield from _leaves(f"{path}.key_value.key", keys)
        yield from _leaves(f"{path}.key_value.value", values)
    elif is_list(type):
        yield from _leaves(f"{path}.list.element", array.flatten())
    else:
        yield path, array
