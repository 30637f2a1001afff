"""What a child process does to itself, before it does anything for somebody else.

It is loaded by every child, so it imports little.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import resource
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
# Beside what is counted as data: mapped files and address space that is reserved but never used.
RESERVED = 4 << 30


def die_with(parent: int) -> None:
    """SIGKILL when the thread that forked us ends; at once if that is over: then nobody would ever send the signal."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def die_first() -> None:
    """When the machine runs out of memory, this process goes before anybody's database."""
    # Not there: not Linux. The limits still hold.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def import_quickly(module: str) -> None:
    """A quarter less CPU: no garbage is looked for while there is none, and structlog goes without rich, which it
    would load for tracebacks of a form that we do not use."""
    gc.disable()
    sys.modules["rich"] = None  # type: ignore[assignment]  # the documented way to make an import fail
    importlib.import_module("structlog")
    del sys.modules["rich"]
    importlib.import_module(module)
    gc.enable()
    gc.freeze()


def limit(memory: int, file: int, *, status: int | None = None) -> None:
    """`memory` is counted from what this process has by now; no file may become larger than `file`.

    `status` is /proc/self/status, opened by a process that could not open it any more."""
    used, mapped = _used(status)
    _lower(resource.RLIMIT_DATA, used + memory)
    _lower(resource.RLIMIT_AS, mapped + memory + RESERVED)
    _lower(resource.RLIMIT_FSIZE, file)
    _lower(resource.RLIMIT_CORE, 0)
    # A write beyond the limit is then an error that the engine reports, not a death.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def _lower(what: int, value: int) -> None:
    _soft, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def open_nothing_more() -> None:
    """What is open stays open."""
    _lower(resource.RLIMIT_NOFILE, 0)


def _used(status: int | None) -> tuple[int, int]:
    """Bytes of data and of address space that this process has already."""
    try:
        text = Path("/proc/self/status").read_text() if status is None else os.pread(status, 64 * 1024, 0).decode()
    except OSError:
        return 0, 0
    lines = text.splitlines()
    sizes = {key: value for key, _, value in (line.partition(":") for line in lines)}
    return int(sizes["VmData"].split()[0]) * 1024, int(sizes["VmSize"].split()[0]) * 1024
