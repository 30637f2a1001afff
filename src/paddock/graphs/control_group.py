"""What the control group of this process may have and has, as the kernel tells. In a pod that is the pod's container: its memory may
grow while it runs, so the limit is read each time."""

import contextlib
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
USAGES = ("memory.current", "memory/memory.usage_in_bytes")
# How much more than it was told one may have got. What is larger is the machine's limit, and not of this process alone.
MOST_GROWN = 8


def memory_limit(told: int, root: Path = ROOT) -> int:
    """What it was told, where the kernel knows no limit of its own."""
    found = _number(root, LIMITS)
    return found if found is not None and 0 < found <= MOST_GROWN * told else told


def memory_used(told: int, root: Path = ROOT) -> int | None:
    """None: what the group uses is not this process's alone."""
    found = _number(root, LIMITS)
    return _number(root, USAGES) if found is not None and found <= MOST_GROWN * told else None


def _number(root: Path, names: tuple[str, ...]) -> int | None:
    for name in names:
        with contextlib.suppress(OSError, ValueError):  # "max": no limit
            return int((root / name).read_text())
    return None
