"""Values of DuckDB that readers of its files would take for others: 'infinity' of dates and times is the largest number,
a day far away to every reader, and the time 24:00:00 is read as 00:00:00.

Looked for by the parent: a child that had to load Arrow's functions would start half as fast again.
"""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from paddock.jobs.errors import PermanentRunnerError, UserMistake

A_DAY = {"us": 86_400_000_000, "ns": 86_400_000_000_000}


def refuse_unwritable(batch: pa.RecordBatch) -> None:
    for field, array in zip(batch.schema, batch.columns, strict=True):
        for leaf in _leaves(array):
            if _infinite(leaf):
                raise _refused(
                    f"Column '{field.name}' has a date or time that is infinite, which no file can hold.",
                    "Leave such rows out (isfinite), or turn the value into NULL.",
                )
            if _ends_a_day(leaf):
                raise _refused(
                    f"Column '{field.name}' has the time 24:00:00, which files do not have: readers take it for 00:00:00.",
                    "Cast the column to VARCHAR in the query, or leave such rows out.",
                )


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    kind = array.type
    if pa.types.is_map(kind):
        yield from _leaves(array.keys)
        yield from _leaves(array.items)
    elif pa.types.is_list(kind):
        yield from _leaves(array.flatten())
    elif pa.types.is_struct(kind):
        for part in array.flatten():
            yield from _leaves(part)
    else:
        yield array


def _infinite(array: pa.Array) -> bool:
    kind = array.type
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return False
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    found = pc.min_max(array.view(number)).as_py()
    most = 2 ** (number.bit_width - 1) - 1
    return found["max"] is not None and (found["max"] == most or found["min"] <= -most)


def _ends_a_day(array: pa.Array) -> bool:
    if not pa.types.is_time64(array.type):
        return False
    latest = pc.max(array.view(pa.int64())).as_py()
    return latest is not None and latest >= A_DAY[array.type.unit]


def _refused(message: str, hint: str) -> PermanentRunnerError:
    return UserMistake(message, code="value_not_exportable", hint=hint)
