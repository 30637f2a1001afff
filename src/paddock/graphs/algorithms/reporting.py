"""What a step tells the server: how much of it is done, or why the execution cannot go on."""

import errno
from collections.abc import Callable

from paddock.graphs.children.explaining import DISK, MEMORY

# Told how much of a step is done, from 0 to 1.
Tell = Callable[[float], None]


class Failed(Exception):
    """The execution cannot go on, for a reason that the person who asked for it should read."""

    def __init__(self, code: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.facts = {"code": code, "message": message, "hint": hint}


def failure(problem: Exception) -> Failed:
    """What nobody foresaw is raised again: the server keeps the traceback in its log."""
    words = str(problem)
    if isinstance(problem, Failed):
        return problem
    if isinstance(problem, MemoryError) or any(one in words for one in MEMORY):
        return Failed(
            "algorithm_out_of_memory",
            "The algorithm needs more memory than this instance has for it.",
            hint="Leave out labels or edge types, or create the instance with more memory_gb.",
        )
    full = isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    if full or any(one in words for one in DISK):
        return disk_full()
    raise problem


def disk_full() -> Failed:
    return Failed(
        "disk_full",
        "There is no room on the disk for a copy of the database with the result.",
        hint="Make room, or delete instances that nobody needs.",
    )
