"""Frames over a pipe: a kind (one byte), a length and so many bytes. What they mean is said by whoever sends them.

This is the child's end, loaded by every child, so it imports little.
"""

import os
import struct
from collections.abc import Sequence
from typing import Any

HEADER = struct.Struct("<cQ")
MAX_VECTORS = 1024  # IOV_MAX


def write_frame(fd: int, kind: bytes, parts: Sequence[Any]) -> None:
    """A full pipe blocks: this is all the back-pressure there is, and all that is needed."""
    views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
    length = sum(view.nbytes for view in views)
    views.insert(0, memoryview(HEADER.pack(kind, length)))
    while views:
        written = os.writev(fd, views[:MAX_VECTORS])
        while views and written >= views[0].nbytes:
            written -= views.pop(0).nbytes
        if views:
            views[0] = views[0][written:]
