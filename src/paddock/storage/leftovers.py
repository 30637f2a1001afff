"""Drafts that nobody names any more.

A draft is a folder whose name is a draft's id (a version 4 UUID, 32 hex digits) and that has no draft inside: ids of
owners and snapshots look alike, and what lies beside their drafts is none of ours to remove. Only files below drafts
are touched, and only while the newest of them is older than the limit.

What killed uploads left counts as a file of its draft, as old as its beginning: in folders (`part-00000.parquet#1`) and
on S3, where Paddock is allowed to list uploads. Elsewhere it cannot be seen: see `Store.needs_lifecycle_rule`.
"""

import re
from collections.abc import Awaitable, Callable, Sequence, Set
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
    """`kept` says which of some drafts are named by somebody; it is asked only after the listing, so that whatever was
    begun meanwhile is either known to it or too young."""
    old = [draft for draft, modified in (await _drafts(store)).items() if modified < older_than]
    count = size = 0
    for start in range(0, len(old), ASKED_AT_ONCE):
        asked = old[start : start + ASKED_AT_ONCE]
        named = await kept(asked)
        for draft in asked:
            if draft not in named:
                removed = await store.delete_below(draft, older_than)
                count, size = count + (removed.count > 0), size + removed.bytes
    return Collected(count, size)


async def _drafts(store: Store) -> dict[str, datetime]:
    newest: dict[str, datetime] = {}
    outer: set[str] = set()
    async for entry in store.list(unfinished=True):
        folders = entry.key.split("/")[:-1]
        drafts = ["/".join(folders[: at + 1]) for at, name in enumerate(folders) if DRAFT.fullmatch(name)]
        if drafts:
            outer.update(drafts[:-1])
            newest[drafts[-1]] = max(entry.modified, newest.get(drafts[-1], entry.modified))
    return {draft: modified for draft, modified in newest.items() if draft not in outer}
