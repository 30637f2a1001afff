"""How much memory and disk a graph needs, from what its snapshot says. Parquet expands: measured with graphs of 1 and 6 million
rows, a load needs about 5 times the bytes of its files and 70 bytes for each row beside what every process has; the formula
leaves a quarter above that, and half of the memory is the engine's buffer pool."""

import math

from paddock.exports.snapshot_states import Snapshot

GB = 1 << 30
LEAST_GB, MOST_GB = 1, 32
BASE = 256 << 20
PER_BYTE, PER_ROW, MARGIN = 6, 100, 1.25
# How often a load that ran out of memory is tried with twice as much.
MOST_STEPS = 3


def memory_gb(snapshot: Snapshot) -> int:
    rows = sum((snapshot.node_counts or {}).values()) + sum((snapshot.edge_counts or {}).values())
    needed = (BASE + PER_BYTE * (snapshot.size_bytes or 0) + PER_ROW * rows) * MARGIN
    return min(MOST_GB, max(LEAST_GB, math.ceil(needed / GB)))


def disk_bytes(snapshot: Snapshot) -> int:
    """The files, the database, and its copy while an algorithm's result is written."""
    return 4 * (snapshot.size_bytes or 0) + GB
