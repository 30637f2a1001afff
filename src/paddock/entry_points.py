"""What installed packages add to Paddock.

To look through all of them takes some milliseconds, and as much to load what looks. So a process first asks whether any of
them mentions Paddock at all, looks once for all groups, and again only when it looks for packages in other places.
"""

import os
import sys
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

MENTION = b"[paddock."


def entry_points(group: str) -> "Iterable[EntryPoint]":
    path = tuple(sys.path)
    return _installed(path).select(group=group) if _mentioned(path) else ()


@cache
def _installed(path: tuple[str, ...]) -> Any:  # EntryPoints, or SelectableGroups before Python 3.12: both can select
    from importlib import metadata

    return metadata.entry_points()


@cache
def _mentioned(path: tuple[str, ...]) -> bool:
    """Whether a package in these folders names a group of ours. What is no folder, like a zip file, may hold one."""
    return any(_mentions(folder or os.curdir) for folder in path)


def _mentions(folder: str) -> bool:
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    for name in names:
        if name.endswith((".dist-info", ".egg-info", ".egg")):
            try:
                with open(f"{folder}/{name}/entry_points.txt", "rb") as file:
                    if MENTION in file.read():
                        return True
            except FileNotFoundError:
                if name.endswith(".egg"):
                    return True
            except NotADirectoryError:
                pass
    return False
