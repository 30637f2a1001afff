"""What a child takes from itself before it reads a word of somebody's query.

It dies with its parent; it has no environment; its memory, the size of its files and its core dumps are limited; and
where the kernel has Landlock it reads only what the engine names and Python's library, writes only in its spill
folder, opens no TCP connection and executes nothing. Where there is no Landlock, the engine's own settings have to hold alone; `check`
says so.
"""

import contextlib
import ctypes
import gc
import os
import resource
import signal
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddock.engines.children import landlock

PR_SET_PDEATHSIG = 1
# Beside what is counted as data: mapped files and address space that is reserved but never used.
RESERVED = 4 << 30


def begin(parent: int) -> None:
    """Before anything heavy is imported."""
    die_with(parent)
    die_first()
    # There is no garbage while modules load, and little afterwards.
    gc.disable()
    # Threads of numpy and Arrow would run outside of what confines us.
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"})


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


def forget_environment() -> None:
    os.environ.clear()


def limit(memory: int, file: int) -> None:
    used, mapped = _used()
    _lower(resource.RLIMIT_DATA, used + memory)
    _lower(resource.RLIMIT_AS, mapped + memory + RESERVED)
    _lower(resource.RLIMIT_FSIZE, file)
    _lower(resource.RLIMIT_CORE, 0)
    # A write beyond the limit is then an error that the engine reports, not a death.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)


def confine(roots: Sequence[Path], hidden: Sequence[Path], files: Sequence[Path], spill: Path) -> bool:
    """Whether the kernel holds us. `hidden` is inside a root and stays unreadable; its names can be listed."""
    rules = [(path, landlock.READ) for root in roots for path in readable(root, hidden)]
    if any(_holds(root, path) for root in roots for path in hidden):
        rules += [(root, landlock.READ_DIR) for root in roots]
    rules += [(file, landlock.READ) for file in [*files, *_libraries()] if file.exists()]
    return landlock.restrict([*rules, (spill, landlock.SPILL)])


def _libraries() -> set[Path]:
    """Python's own, from which it loads something when it is first needed. The engine's settings keep queries out."""
    return {Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib")}


def readable(root: Path, hidden: Sequence[Path]) -> Iterator[Path]:
    """`root`, or its entries where something hidden is among them: a rule cannot take away, only give."""
    if any(root.is_relative_to(path) for path in hidden):
        return
    if not any(_holds(root, path) for path in hidden):
        yield root
        return
    for entry in root.iterdir():
        # A link leads elsewhere; if that is inside a root, it is allowed there.
        if not entry.is_symlink():
            yield from readable(entry, hidden)


def _holds(root: Path, path: Path) -> bool:
    return path != root and path.is_relative_to(root)


def _lower(what: int, value: int) -> None:
    _soft, hard = resource.getrlimit(what)
    value = value if hard == resource.RLIM_INFINITY else min(value, hard)
    resource.setrlimit(what, (value, value))


def _used() -> tuple[int, int]:
    """Bytes of data and of address space that this process has already."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0, 0
    sizes = {key: value for key, _, value in (line.partition(":") for line in lines)}
    return int(sizes["VmData"].split()[0]) * 1024, int(sizes["VmSize"].split()[0]) * 1024
