"""The process whose end ends every local instance: the `paddock up` that this process belongs to, else this process.

A process is told by its id and by when it started: ids are used again.
"""

import os
from dataclasses import dataclass
from pathlib import Path

_said: list[int] = []


@dataclass(frozen=True, slots=True)
class ProcessId:
    pid: int
    # Field 22 of /proc/PID/stat.
    started: str

    @property
    def alive(self) -> bool:
        return started_of(self.pid) == self.started


def keep_by(pid: int) -> None:
    """Said once by a process that belongs to a `paddock up`."""
    _said[:] = [pid]


def keeper() -> ProcessId:
    pid = _said[0] if _said else os.getpid()
    return ProcessId(pid, started_of(pid) or "")


def started_of(pid: int) -> str | None:
    """None: there is no such process, or only what is left of it until somebody asks how it ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The second field is a name in parentheses, which may hold anything.
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]
