import asyncio
import hashlib
import threading
from pathlib import Path

import orjson
import pytest

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.storage.drafts import Draft, DraftFile, new_draft_id, read_manifest
from paddock.storage.leftovers import DRAFT
from paddock.storage.scratch import Scratch, ScratchFile
from paddock.storage.store import Store
from tests.storage.looking import keys


def written(scratch: Scratch, content: bytes, rows: int = 1) -> ScratchFile:
    file = scratch.new(".parquet")
    file.write(content)
    file.rows = rows
    file.close()
    return file


async def test_a_manifest_names_what_was_added(store: Store, scratch: Scratch) -> None:
    draft = Draft(store, "owner/1/v1/2/nodes/Person", new_draft_id())
    first, second = written(scratch, b"first", rows=3), written(scratch, b"second!", rows=4)
    await draft.add(first, "part-00000.parquet", partition={"year": "2026"})
    await draft.add(second, "year=2026/part-00001.parquet")
    first.remove()

    sealed = await draft.seal({"schema": [], "query_id": "q"})
    manifest = await read_manifest(store, sealed.manifest, sealed.sha256)

    assert (sealed.rows, sealed.bytes, sealed.files) == (7, 12, 2)
    assert sealed.manifest == f"owner/1/v1/2/nodes/Person/{draft.id}/_manifest.json"
    assert [part.name for part in manifest.files] == ["part-00000.parquet", "year=2026/part-00001.parquet"]
    assert manifest.files[0].facts == {"partition": {"year": "2026"}}
    assert manifest.facts == {"schema": [], "query_id": "q"}
    for part in manifest.files:
        content = await store.read(manifest.key(part))
        assert (len(content), hashlib.sha256(content).hexdigest()) == (part.bytes, part.sha256)


async def test_files_keep_the_order_in_which_they_were_begun(
    folder: Store, scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Draft(folder, "owner", new_draft_id())
    second_is_there = threading.Event()
    link = folder._backend.link

    def slow_first(key: str, path: Path) -> bool:
        if key.endswith("first"):
            second_is_there.wait()
        return link(key, path)

    monkeypatch.setattr(folder._backend, "link", slow_first)
    first = asyncio.create_task(draft.add(written(scratch, b"1"), "first"))
    await asyncio.sleep(0)
    await draft.add(written(scratch, b"2"), "second")
    with pytest.raises(ValueError, match="after its uploads"):
        await draft.seal({})
    second_is_there.set()
    await first

    sealed = await draft.seal({})
    assert [part.name for part in (await read_manifest(folder, sealed.manifest, sealed.sha256)).files] == [
        "first",
        "second",
    ]


async def test_an_upload_that_failed_is_not_in_the_manifest(
    folder: Store, scratch: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Draft(folder, "owner", new_draft_id())
    file = written(scratch, b"content")
    file.path.write_bytes(b"conte")

    with pytest.raises(TransientResourceError) as refused:
        await draft.add(file, "part")

    assert refused.value.code == "upload_incomplete"
    assert (await draft.seal({})).files == 0


async def test_a_file_the_engine_wrote_is_adopted_once_it_is_found_whole(store: Store) -> None:
    draft = Draft(store, "owner", new_draft_id())
    await store.put(f"{draft.prefix}/20260101_x", b"12345")

    for wrong in (DraftFile("20260101_x", 1, 4, None), DraftFile("missing", 1, 4, None)):
        with pytest.raises(TransientResourceError):
            await draft.adopt(wrong)
    await draft.adopt(DraftFile("20260101_x", 1, 5, None))

    sealed = await draft.seal({})
    assert (await read_manifest(store, sealed.manifest, sealed.sha256)).files[0].sha256 is None


async def test_a_draft_is_sealed_once(store: Store) -> None:
    draft = Draft(store, "owner", new_draft_id())

    first = await draft.seal({"started_at": "now"})

    # Its answer may have been lost.
    assert await draft.seal({"started_at": "now"}) == first
    with pytest.raises(PermanentRunnerError) as refused:
        await draft.seal({"started_at": "later"})
    assert refused.value.code == "draft_already_sealed"


async def test_a_manifest_that_was_changed_is_not_believed(store: Store) -> None:
    sealed = await Draft(store, "owner", new_draft_id()).seal({})
    content = orjson.loads(await store.read(sealed.manifest))
    await store.put(sealed.manifest, orjson.dumps({**content, "rows": 1}))

    with pytest.raises(PermanentRunnerError) as refused:
        await read_manifest(store, sealed.manifest, sealed.sha256)

    assert refused.value.code == "manifest_changed"


async def test_a_name_is_used_once_and_stays_inside(folder: Store, scratch: Scratch) -> None:
    draft = Draft(folder, "owner", new_draft_id())
    await draft.add(written(scratch, b""), "part")

    for name in ("part", "_manifest.json"):
        with pytest.raises(ValueError, match="already"):
            await draft.add(written(scratch, b""), name)
    with pytest.raises(PermanentRunnerError):
        await draft.add(written(scratch, b""), "../part")
    with pytest.raises(ValueError, match="own names"):
        await draft.seal({"rows": 5})


async def test_a_discarded_draft_is_gone_and_its_neighbours_are_not(store: Store, scratch: Scratch) -> None:
    draft, neighbour = (Draft(store, "owner", new_draft_id()) for _ in range(2))
    await draft.add(written(scratch, b"1"), "a/part")
    await neighbour.seal({})

    await draft.discard()
    await draft.discard()

    assert await keys(store) == [f"{neighbour.prefix}/_manifest.json"]


def test_the_id_of_a_draft_is_known_as_one() -> None:
    assert all(DRAFT.fullmatch(new_draft_id()) for _ in range(100))
