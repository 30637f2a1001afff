"""How hard zstd tries, by column.

Words, and times one after another, are 5 to 25 % smaller at level 3 than at level 1, for half as much CPU again. Random
ids and uneven numbers are larger at 3, and take twice as long. So some rows of the first row group are written both
ways. Dictionaries leave little to find: level 1.
"""

from collections.abc import Collection, Mapping

import pyarrow as pa

from paddock.exports.writing.samples import SLICES, leaves_of, spread, written

FAST, HARD = 1, 3
# What the higher level has to save for its CPU.
WORTH = 0.03
# A column of less has little to gain, and a file of few rows must not take twice as long.
LARGE = 512 << 10
SAMPLED_BYTES = 2 << 20
# Up to 256 KiB zstd's levels mean something else: a little more is tried, as pages have more.
TRIED_BYTES = 264 << 10


def zstd_levels(table: pa.Table, dictionary: Collection[str], encodings: Mapping[str, str]) -> dict[str, int]:
    """By path of a leaf, where it is not the fast one."""
    return {
        path: HARD
        for path, array in leaves_of(table, len(table), SAMPLED_BYTES)
        if path not in dictionary and array.nbytes >= LARGE and _gains(array.drop_null(), encodings.get(path))
    }


def _gains(array: pa.Array, encoding: str | None) -> bool:
    few = pa.concat_arrays(spread(array, max(len(array) * TRIED_BYTES // max(array.nbytes, 1), SLICES)))
    fast, hard = (written(few, level=level, encoding=encoding)[0] for level in (FAST, HARD))
    return hard <= fast * (1 - WORTH)
