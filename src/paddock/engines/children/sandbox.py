"""What a child takes from itself before it reads a word of somebody's query.

It dies with its parent; it has no environment; its memory, the size of its files and its core dumps are limited; and
where the kernel has Landlock it reads only what the engine names and Python's library, writes only in its spill
folder, opens no TCP connection and executes nothing. Where there is no Landlock, the engine's own settings have to hold alone; `check`
says so.
"""

import gc
import os
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddock.child_processes.beginning import die_first, die_with
from paddock.engines.children import landlock


def begin(parent: int) -> None:
    """Before anything heavy is imported."""
    die_with(parent)
    die_first()
    # There is no garbage while modules load, and little afterwards.
    gc.disable()
    # Threads of numpy and Arrow would run outside of what confines us.
    os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"})


def forget_environment() -> None:
    os.environ.clear()


def confine(roots: Sequence[Path], hidden: Sequence[Path], files: Sequence[Path], *spill: Path) -> bool:
    """Whether the kernel holds us. `hidden` is inside a root and stays unreadable; its names can be listed."""
    rules = [(path, landlock.READ) for root in roots for path in readable(root, hidden)]
    if any(_holds(root, path) for root in roots for path in hidden):
        rules += [(root, landlock.READ_DIR) for root in roots]
    rules += [(file, landlock.READ) for file in [*files, *_libraries()] if file.exists()]
    return landlock.restrict([*rules, *((folder, landlock.SPILL) for folder in spill)])


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
