"""What a step takes from itself: files that it does not need, and memory and disk beyond its share."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paddock.child_processes.beginning import limit
from paddock.engines.children import sandbox


def confine(request: dict[str, Any], readable: Sequence[Path], *writable: Path) -> Callable[[], None]:
    """From here on only these folders, and Python's library, can be reached, where the kernel has Landlock.

    What is returned sets the limits: they are counted from what the process has when it is called, so an engine is opened
    before. It keeps open what tells the sizes, because later they could not be read."""
    status = os.open("/proc/self/status", os.O_RDONLY)
    if request["landlock"]:
        sandbox.confine(readable, [], [], *writable)

    def set_limits() -> None:
        limit(request["memory_bytes"], request["disk_bytes"], status=status)
        os.close(status)

    return set_limits
