"""What this machine has and what its processes use, as the kernel tells."""

import contextlib
import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
# Of the second version of control groups, and of the first.
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")


def usable_memory() -> int:
    """Of the machine, or of the control group this process is in."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name in LIMITS:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            total = min(total, int((CGROUP / name).read_text()))
    return total


def oom_kills() -> int:
    """How often the kernel ended a process because there was no memory left, since it started."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, count = line.partition(" ")
            if name == "oom_kill":
                return int(count)
    return 0


def memory_tree(pid: int) -> int:
    """Bytes that a process and all below it have in memory. What ends meanwhile counts as nothing."""
    total, waiting = 0, [pid]
    while waiting:
        one = waiting.pop()
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{one}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
            for children in Path(f"/proc/{one}/task").glob("*/children"):
                waiting += map(int, children.read_text().split())
    return total
