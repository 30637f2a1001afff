"""Drafts that nobody names any more.

A draft is a folder whose name is a draft's id (a version 4 UUID, 32 hex digits) and that has no draft inside: ids of
owners and snapshots look alike, and what lies beside their drafts is none of ours to remove. Only files below drafts
are touched, and only while the newest of them is older than the limit.

What killed uploads left counts as a file of its draft, as old as its beginning: in folders (`part-00000.parquet#1`) and
on S3, where Paddock is allowed to list uploads. Elsewhere it cannot be seen: see `Store.needs_lifecycle_rule`.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence, Set
from dataclasses import dataclass
from datetime import datetime

from paddock.storage.store import Store

DRAFT = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")

ASKED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Collected:
    """Drafts, and the bytes of their files."""

    count: int = 0
    bytes: int = 0


Kept = Callable[[Sequence[str]], Awaitable[Set[str]]]


async def collect(store: Store, kept: Kept, older_than: datetime) -> Collected:
    """`kept` says which of some drafts are named by somebody; it is asked only after they were listed, so that whatever
    was begun meanwhile is either known to it or too young."""
    count = size = 0
    async for asked in _pages(store, older_than):
        named = await kept(asked)
        for draft in asked:
            if draft not in named and await _is_left(store, draft, older_than):
                removed = await store.delete_below(draft, older_than)
                count, size = count + (removed.count > 0), size + removed.bytes
    return Collected(count, size)


async def _pages(store: Store, older_than: datetime) -> AsyncIterator[Sequence[str]]:
    """Folders that may be drafts and have something old, some at a time. A listing gives what is in a folder together:
    where it does not, a folder is named twice, which does no harm."""
    found: dict[str, None] = {}
    last = None
    async for entry in store.list(unfinished=True):
        drafts = _drafts_of(entry.key)
        if drafts and drafts[-1] != last and entry.modified < older_than:
            last = drafts[-1]
            found[last] = None
            if len(found) == ASKED_AT_ONCE:
                yield [*found]
                found.clear()
    if found:
        yield [*found]


async def _is_left(store: Store, folder: str, older_than: datetime) -> bool:
    """Looked at once more, alone: nothing in it is young, and it is no owner's or snapshot's."""
    async for entry in store.list(folder, unfinished=True):
        if entry.modified >= older_than or _drafts_of(entry.key)[-1] != folder:
            return False
    return True


def _drafts_of(key: str) -> Sequence[str]:
    """The folders on the way to it that are named as drafts are."""
    folders = key.split("/")[:-1]
    return ["/".join(folders[: at + 1]) for at, name in enumerate(folders) if DRAFT.fullmatch(name)]
