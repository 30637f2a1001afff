"""What a Parquet file says of itself, without reading more than its end."""

import io
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from paddock.jobs.errors import TransientResourceError
from paddock.storage.store import Store

MAGIC = b"PAR1"
# Footers of usual files are smaller, so one read does.
TAIL = 64 << 10


@dataclass(frozen=True, slots=True)
class Footer:
    rows: int
    schema: pa.Schema


async def footer(store: Store, key: str, size: int) -> Footer:
    tail = await store.read_range(key, max(0, size - TAIL), min(size, TAIL))
    if len(tail) < 12 or tail[-4:] != MAGIC:
        raise _damaged(key)
    length = int.from_bytes(tail[-8:-4], "little") + 8
    if length > size:
        raise _damaged(key)
    if length > len(tail):
        tail = await store.read_range(key, size - length, length)
    try:
        # The reader wants the magic at the start too, which the range left out.
        metadata = pq.read_metadata(io.BytesIO(MAGIC + tail[-length:]))
    except (pa.ArrowException, OSError) as problem:
        raise _damaged(key) from problem
    return Footer(metadata.num_rows, metadata.schema.to_arrow_schema())


def _damaged(key: str) -> TransientResourceError:
    return TransientResourceError(
        f"'{key}' is not a whole Parquet file.",
        code="output_damaged",
        hint="Paddock exports it again. If it stays so, look at what writes to the store.",
    )
