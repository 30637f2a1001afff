"""What ends a runner whose supervisor no longer does.

A supervisor that stands still (SIGSTOP, a debugger, a machine that swaps) beats no more: its lease ends, others get its
jobs, and its runners go on. What the fence protects is safe, for late writes change nothing. Effects outside the fence
would go on beside those of the next attempt. So the supervisor writes down, before such a turn starts and with each beat
that was answered, until when it may run: one beat before the lease would end. A thread of the runner kills the runner and
all that it started at that time. A supervisor that lives gets there first, and gives its turns time to end by themselves.

The time stands in memory that both share and not in a message: a handler that keeps the runner's loop or interpreter busy
must not make it miss that the lease goes on. A handler that holds the interpreter is killed as soon as it lets go of it.
"""

import mmap
import os
import signal
import struct
import tempfile
import threading
import time
from uuid import UUID

TIME = struct.Struct("d")
# How often the thread looks whether the time was moved, while a turn runs that it is for.
PERIOD = 0.25


class Deadline:
    """A time of the machine's monotonic clock, which is the same in all processes. 0: none was written yet."""

    def __init__(self, fd: int) -> None:
        self._memory = mmap.mmap(fd, TIME.size)

    def write(self, at: float) -> None:
        TIME.pack_into(self._memory, 0, at)

    def read(self) -> float:
        at: float = TIME.unpack_from(self._memory)[0]
        return at

    def close(self) -> None:
        self._memory.close()


def shared_memory() -> int:
    """The file descriptor of a file without a name, to be given to a child and closed."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("paddock-deadline")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, TIME.size)
    return fd


class Guard:
    """Knows which turns must not outlive the lease, and ends the process when one would."""

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._running: set[UUID] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, attempt_id: UUID) -> None:
        with self._changed:
            self._running.add(attempt_id)
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="guard", daemon=True)
            self._thread.start()

    def over(self, attempt_id: UUID) -> None:
        if not self._running:
            return
        with self._changed:
            self._running.discard(attempt_id)

    def _watch(self) -> None:
        with self._changed:
            while not self.passed():
                self._changed.wait(self._pause())
            # Still under the lock: a turn that ends now is killed with its answer, or was over before.
            end_all()

    def _pause(self) -> float | None:
        """Until somebody must look again: not later than the time itself, however short the beats are."""
        if not self._running:
            return None
        at = self._deadline.read()
        return PERIOD if at == 0 else min(PERIOD, max(0.0, at - time.monotonic()))

    def passed(self) -> bool:
        at = self._deadline.read()
        return bool(self._running) and 0 < at <= time.monotonic()


def end_all() -> None:
    """This process and all that it started. It leads their group, unless somebody ran it by hand."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
