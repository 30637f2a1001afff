import os
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence, Set
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pytest

from paddock.storage import leftovers
from paddock.storage.drafts import new_draft_id
from paddock.storage.leftovers import Collected, Kept, collect
from paddock.storage.store import Store, StoredObject, open_store
from tests.storage.looking import keys
from tests.storage.servers import Server


def later() -> datetime:
    """A limit that everything here is older than."""
    return datetime.now(UTC) + timedelta(hours=1)


def naming(*drafts: str) -> Kept:
    """Who names these, and nothing else."""

    async def kept(asked: Sequence[str]) -> Set[str]:
        return {*asked} & {*drafts}

    return kept


async def test_only_drafts_that_nobody_names_are_removed(store: Store) -> None:
    kept, left = f"o/m/{new_draft_id()}", f"o/m/{new_draft_id()}"
    for draft in (kept, left):
        await store.put(f"{draft}/year=1/part-00000.parquet", b"12")
        await store.put(f"{draft}/_manifest.json", b"{}")
    others = [
        "notes.txt",
        "o/notes.txt",
        f"o/{uuid4()}/dashes",
        f"o/{'f' * 32}/no-uuid",
        f"o/{new_draft_id()[:-1]}/short",
    ]
    for key in others:
        await store.put(key, b"")

    assert await collect(store, naming(kept), later()) == Collected(1, 4)

    assert await keys(store) == sorted([*others, f"{kept}/_manifest.json", f"{kept}/year=1/part-00000.parquet"])
    assert await collect(store, naming(kept), later()) == Collected(0, 0)


@pytest.mark.parametrize("at_once", [1, 1000])
async def test_ids_above_a_draft_that_look_like_one_are_not_drafts(
    store: Store, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(leftovers, "ASKED_AT_ONCE", at_once)
    owner, snapshot = new_draft_id(), new_draft_id()
    live, left = (f"{owner}/m/v1/{snapshot}/nodes/Person/{new_draft_id()}" for _ in range(2))
    for key in (f"{live}/part", f"{left}/part", f"{owner}/readme", f"{owner}/m/v1/{snapshot}/readme"):
        await store.put(key, b"1")

    assert await collect(store, naming(live), later()) == Collected(1, 1)

    assert await keys(store) == sorted([f"{live}/part", f"{owner}/readme", f"{owner}/m/v1/{snapshot}/readme"])


async def test_what_is_young_stays(store: Store) -> None:
    await store.put(f"o/{new_draft_id()}/part", b"1")

    assert await collect(store, naming(), datetime.now(UTC) - timedelta(hours=1)) == Collected(0, 0)

    assert len(await keys(store)) == 1


async def test_a_draft_is_as_young_as_its_newest_file(folder: Store, tmp_path: Path) -> None:
    writing, ended = new_draft_id(), new_draft_id()
    limit = datetime.now(UTC) - timedelta(hours=24)
    long_ago = (limit - timedelta(hours=1)).timestamp()
    for draft in (writing, ended):
        for name in ("old", "new"):
            await folder.put(f"{draft}/{name}", b"1")
            os.utime(tmp_path / "store" / draft / name, (long_ago, long_ago))
    # Under way: half an upload, written to just now.
    (tmp_path / "store" / writing / "more#1").write_bytes(b"1")

    assert await collect(folder, naming(), limit) == Collected(1, 2)

    assert await keys(folder, unfinished=True) == sorted(f"{writing}/{name}" for name in ("old", "new", "more#1"))


KILLED = """
import os, signal, sys
from paddock.storage.store import CHUNK, open_store

def source(length, left=[3]):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return b"x" * length

open_store(sys.argv[1]).backend.write(sys.argv[2], source, 8 * CHUNK)
"""


async def test_uploads_that_were_killed_go_with_their_drafts(s3_server: Server) -> None:
    store_url = f"{s3_server.url}/{uuid4()}"
    store = open_store(store_url, environ=s3_server.environ)
    named, left = f"o/m/{new_draft_id()}", f"o/m/{new_draft_id()}"
    for key in (f"{named}/part", f"{left}/part", "o/m/dumps/no-draft"):
        command = [sys.executable, "-c", KILLED, store_url, key]
        assert subprocess.run(command, env={**os.environ, **s3_server.environ}, check=False).returncode == -9
    assert len(await keys(store, unfinished=True)) == 3

    assert await collect(store, naming(named), datetime.now(UTC) - timedelta(hours=1)) == Collected(0, 0)
    assert await collect(store, naming(named), later()) == Collected(1, 0)

    assert await keys(store, unfinished=True) == sorted([f"{named}/part", "o/m/dumps/no-draft"])
    assert await collect(store, naming(), later()) == Collected(1, 0)
    await store.delete_below("o")


async def test_a_great_many_drafts_are_asked_for_by_pages(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "ASKED_AT_ONCE", 2)
    drafts = [new_draft_id() for _ in range(5)]
    for draft in drafts:
        await folder.put(f"{draft}/x", b"1")
    asked: list[int] = []

    async def kept(some: Sequence[str]) -> Set[str]:
        asked.append(len(some))
        return {drafts[0], drafts[3]}

    assert await collect(folder, kept, later()) == Collected(3, 3)

    assert asked == [2, 2, 1]
    assert await keys(folder) == sorted([f"{drafts[0]}/x", f"{drafts[3]}/x"])


async def test_drafts_are_judged_while_the_store_is_listed_and_not_gathered(
    folder: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leftovers, "ASKED_AT_ONCE", 2)
    for _ in range(6):
        await folder.put(f"{new_draft_id()}/x", b"1")
    listing, seen, asked = folder.list, [0], []

    async def counted(prefix: str = "", **how: bool) -> AsyncIterator[StoredObject]:
        async for entry in listing(prefix, **how):
            seen[0] += not prefix
            yield entry

    async def kept(some: Sequence[str]) -> Set[str]:
        asked.append(seen[0])
        return {*some}

    monkeypatch.setattr(folder, "list", counted)
    await collect(folder, kept, later())

    assert asked == [2, 4, 6]


async def test_an_empty_store_has_no_leftovers(store: Store) -> None:
    assert await collect(store, naming(), later()) == Collected(0, 0)
