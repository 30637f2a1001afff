"""Which objects of a remote source a path means: the one of that name, or all that a pattern matches.

What a pattern means is decided by DuckDB when it reads the files: a few more may be found here, never fewer.
"""

import re
from collections.abc import Sequence

from paddock.engines.engine import QueryRefused
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.store import Store, StoredObject

MOST_FILES = 10_000
# Looked at, whatever matches: a thousand requests of most stores.
MOST_LISTED = 1_000_000
GLOB = re.compile(r"[*?\[]")
PARTS = re.compile(r"\*\*|\*|\?|\[[^\]/]*\]|\[.*")
MEANINGS = {"**": ".*", "*": "[^/]*", "?": "[^/]"}


async def matching(store: Store, path: str) -> Sequence[StoredObject]:
    """`path`: the name of the source, a slash, and a key or a pattern."""
    pattern = path.partition("/")[2]
    if any(part in ("", ".", "..") for part in pattern.split("/")):
        raise QueryRefused(
            f"'{path}' is no path in a remote source.", code="path_denied", hint="Its folders have names, not '..'."
        )
    if GLOB.search(pattern) is None:
        entry = await store.entry(pattern)
        found = [] if entry is None else [entry]
    else:
        found = await _listed(store, path, pattern)
    if not found:
        raise QueryRefused(f"There is nothing at '{path}', which is {pattern} in {store.url}.", code="remote_not_found")
    return found


async def _listed(store: Store, path: str, pattern: str) -> list[StoredObject]:
    folder = GLOB.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    matches = re.compile(_regular(pattern), re.DOTALL).fullmatch
    found: list[StoredObject] = []
    listed = 0
    async for entry in store.list(folder):
        listed += 1
        if listed > MOST_LISTED:
            raise PermanentRunnerError(
                f"'{path}' is looked for among more than {MOST_LISTED:,} objects.",
                code="remote_too_large",
                hint="Name more folders before the first * of the pattern.",
            )
        # A name may hold a bracket of its own, and DuckDB then reads that one file.
        if matches(entry.key) is not None or entry.key == pattern:
            found.append(entry)
            check_count(len(found), f"'{path}' names")
    return found


def check_count(files: int, what: str) -> None:
    if files > MOST_FILES:
        raise PermanentRunnerError(
            f"{what} more than {MOST_FILES:,} files.",
            code="remote_too_large",
            hint="Name fewer, or gather many small files into a few large ones.",
        )


def _regular(pattern: str) -> str:
    """What matches at least all that DuckDB's pattern does."""
    at, parts = 0, []
    for found in PARTS.finditer(pattern):
        parts += [re.escape(pattern[at : found.start()]), _meaning(found[0])]
        at = found.end()
    return "".join([*parts, re.escape(pattern[at:])]).replace(".*/", "(?:.*/)?")


def _meaning(part: str) -> str:
    if part.startswith("["):
        return "[^/]" if part.endswith("]") else ".*"
    return MEANINGS[part]
