"""Which columns get a dictionary.

Arrow's default begins a dictionary for every column and gives up in the middle of a column of mostly different values;
the file is then larger, and took longer, than without any. So the distinct share of a few rows of the first row group
decides, and where it leaves a doubt, a trial: a larger sample is encoded both ways. A wrong guess costs size only:
where a dictionary grows beyond a page, the writer goes on without it.
"""

import math

import pyarrow as pa
import pyarrow.compute as pc

from paddock.exports.writing.samples import leaves_of, spread, written

# Counting many different values is dearer than encoding them, so they are counted in fewer rows than are tried.
COUNTED = 16 << 10
TRIED = 64 << 10
# And at a glance in fewer still: so large a share there means one above NEVER.
GLANCED = 2 << 10
UNLIKE = 0.98
TRIED_BYTES = 2 << 20
# Below so many values a share says nothing, and nothing much is lost either way.
FEW = 64
# Up to the first share a dictionary always pays, above the second never; in between it depends on how long the values
# are, how uneven, and how well zstd does without.
SURE = 0.05
NEVER = 0.8


def dictionary_columns(table: pa.Table) -> list[str]:
    """Paths of leaves, as the Parquet writer wants them."""
    return [path for path, array in leaves_of(table, TRIED, TRIED_BYTES) if _repeats(array, len(table))]


def _repeats(array: pa.Array, rows: int) -> bool:
    if not _countable(array.type):
        return False
    if _distinct(array, GLANCED) > UNLIKE:
        return False
    share = _distinct(array, COUNTED)
    return share <= SURE or (share <= NEVER and _pays(array, max(rows / len(array), 1)))


def _distinct(array: pa.Array, most: int) -> float:
    """The share of different values among some."""
    few = pa.concat_arrays(spread(array, most))
    values = len(few) - few.null_count
    return float(pc.count_distinct(few, mode="only_valid").as_py() / values) if values >= FEW else 1.0


def _countable(type: pa.DataType) -> bool:
    return not (pa.types.is_boolean(type) or pa.types.is_null(type) or pa.types.is_float16(type))


def _pays(array: pa.Array, times: float) -> bool:
    """In a group of so many times these values. What repeats is seen again: the dictionary grows slower than the
    group, about by the square root."""
    pages, dictionary = written(array, level=1, dictionary=True)
    return times * pages + math.sqrt(times) * dictionary < times * written(array, level=1)[0]
