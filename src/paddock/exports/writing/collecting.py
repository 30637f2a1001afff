"""Small batches become row groups: one write call of Arrow's Parquet writer is one row group.

At most one group is held. A batch larger than a group is cut.
"""

from collections.abc import Iterator

import pyarrow as pa

# A group of long rows ends here; at 128 Ki rows that is 256 bytes for each.
GROUP_BYTES = 32 << 20


class Collector:
    def __init__(self, schema: pa.Schema, rows: int, size: int = GROUP_BYTES) -> None:
        self._schema = schema
        self._most_rows = rows
        self._most_bytes = size
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.Table]:
        """Gives the groups that are full. The last one stays until it is, or until `rest`."""
        for piece in self._cut(batch):
            size = piece.nbytes
            if self._batches and (
                self._rows + piece.num_rows > self._most_rows or self._bytes + size > self._most_bytes
            ):
                yield self._take()
            self._batches.append(piece)
            self._rows += piece.num_rows
            self._bytes += size
            if self._rows >= self._most_rows or self._bytes >= self._most_bytes:
                yield self._take()

    def rest(self) -> pa.Table | None:
        return self._take() if self._batches else None

    def _cut(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not batch.num_rows:
            return
        by_size = batch.num_rows * self._most_bytes // max(batch.nbytes, 1)
        step = max(1, min(self._most_rows, by_size))
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step)

    def _take(self) -> pa.Table:
        table = pa.Table.from_batches(self._batches, self._schema)
        self._batches, self._rows, self._bytes = [], 0, 0
        return table
