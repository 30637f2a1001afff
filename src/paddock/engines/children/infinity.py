"""DuckDB's 'infinity' of dates and times is the largest number, which every reader takes for a day far away.

Looked for by the parent: a child that had to load Arrow's functions would start half as fast again.
"""

import pyarrow as pa
import pyarrow.compute as pc

from paddock.jobs.errors import PermanentRunnerError


def refuse_infinity(batch: pa.RecordBatch) -> None:
    for field, array in zip(batch.schema, batch.columns, strict=True):
        if _infinite(array):
            raise PermanentRunnerError(
                f"Column '{field.name}' has a date or time that is infinite, which no file can hold.",
                code="value_not_exportable",
                hint="Leave such rows out (isfinite), or turn the value into NULL.",
            )


def _infinite(array: pa.Array) -> bool:
    kind = array.type
    if pa.types.is_map(kind):
        return _infinite(array.keys) or _infinite(array.items)
    if pa.types.is_list(kind):
        return _infinite(array.flatten())
    if pa.types.is_struct(kind):
        return any(_infinite(part) for part in array.flatten())
    if not (pa.types.is_date32(kind) or pa.types.is_timestamp(kind)):
        return False
    number = pa.int32() if pa.types.is_date32(kind) else pa.int64()
    found = pc.min_max(array.view(number)).as_py()
    most = 2 ** (number.bit_width - 1) - 1
    return found["max"] is not None and (found["max"] == most or found["min"] <= -most)
