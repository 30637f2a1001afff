"""A few rows of each leaf column of what will be written first, and what they take when they are written.

What is sampled is copied, and the copies count beside the row group: one column's at a time, and of long values fewer.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paddock.exports.writing.text import is_list, list_elements, map_entries

# Spread over the rows: sorted input repeats its neighbours.
SLICES = 16
# A page ends at one or the other. Arrow ends it at 20,000 rows or a MiB; zstd finds more in larger ones, words above all.
PAGE_ROWS = 64 << 10
PAGE_BYTES = 2 << 20


def leaves_of(table: pa.Table, rows: int, size: int) -> Iterator[tuple[str, pa.Array]]:
    """Paths, as the Parquet writer wants them, each with about so many rows or bytes of its column."""
    for name, column in zip(table.schema.names, table.columns, strict=True):
        most = min(rows, len(column) * size // max(column.nbytes, 1))
        chunks = [chunk for some in spread(column, max(most, SLICES)) for chunk in some.chunks]
        yield from _leaves(name, pa.concat_arrays(chunks) if chunks else pa.nulls(0, column.type))


def spread(rows: Any, most: int) -> list[Any]:
    """Slices of a column or an array, `most` rows together."""
    if len(rows) <= most:
        return [rows]
    size, step = most // SLICES, len(rows) // SLICES
    return [rows.slice(start * step, size) for start in range(SLICES)]


def written(array: pa.Array, *, level: int, dictionary: bool = False, encoding: str | None = None) -> tuple[int, int]:
    """Bytes of the pages in zstd, and of the dictionary before them."""
    footers: list[pq.FileMetaData] = []
    pq.write_table(
        pa.table({"leaf": array}),
        pa.MockOutputStream(),
        use_dictionary=dictionary,
        column_encoding={"leaf": encoding} if encoding else None,
        compression="zstd",
        compression_level=level,
        max_rows_per_page=PAGE_ROWS,
        data_page_size=PAGE_BYTES,
        store_decimal_as_integer=True,
        write_statistics=False,
        metadata_collector=footers,
    )
    chunk = footers[0].row_group(0).column(0)
    before = chunk.data_page_offset - chunk.dictionary_page_offset if chunk.has_dictionary_page else 0
    return chunk.total_compressed_size - before, before


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
        yield from _leaves(f"{path}.list.element", list_elements(array))
    else:
        yield path, array
