"""Uploads by parts into a folder: what only a disk can do wrong."""

import os
from pathlib import Path

import pytest

from paddock.jobs.errors import PermanentRunnerError, TransientResourceError
from paddock.storage.failures import UploadGone
from paddock.storage.parts import open_parts
from paddock.storage.store import MAX_SEGMENT, Store, open_store
from tests.storage.disks import SMALL
from tests.storage.disks import small_disk as small_disk
from tests.storage.looking import keys


async def test_a_full_disk_is_said_and_the_upload_goes_on_when_there_is_room(small_disk: Path) -> None:
    store = open_store(str(small_disk))
    parts = open_parts(store)
    most = b"x" * (SMALL * 3 // 4)
    await store.put("other", most)
    upload = await parts.begin("a/x")

    with pytest.raises(TransientResourceError) as refused:
        await parts.send("a/x", upload, 1, 0, most)
    assert refused.value.code == "disk_full"

    await store.delete(["other"])
    etag = await parts.send("a/x", upload, 1, 0, most)
    whole = await parts.complete("a/x", upload, [etag], len(most))
    assert await store.read("a/x") == most
    assert whole.size == len(most)


async def test_the_longest_name_has_room_for_an_upload(folder: Store) -> None:
    parts = open_parts(folder)
    key = "n" * MAX_SEGMENT
    upload = await parts.begin(key)

    await parts.complete(key, upload, [await parts.send(key, upload, 1, 0, b"x")], 1)

    assert await keys(folder, unfinished=True) == [key]


@pytest.mark.parametrize("upload", ["", "1", "/../../secret", "99999999999999", "/etc/passwd", "1" * 14 + "\n"])
async def test_an_id_that_was_not_given_out_leads_nowhere(folder: Store, tmp_path: Path, upload: str) -> None:
    parts = open_parts(folder)
    await parts.begin("a/x")
    await folder.put("a/x#/y", b"a folder to climb through")
    await folder.put("secret", b"secret")

    with pytest.raises(UploadGone):
        await parts.send("a/x", upload, 1, 0, b"changed")
    with pytest.raises(UploadGone):
        await parts.complete("a/x", upload, [], 7)

    assert await folder.read("secret") == b"secret"


async def test_no_link_leads_out_of_the_folder(folder: Store, tmp_path: Path) -> None:
    parts = open_parts(folder)
    outside = tmp_path / "outside"
    outside.mkdir()
    upload = await parts.begin("a/x")
    (outside / f"x#{upload}").write_bytes(b"theirs")
    os.rename(tmp_path / "store" / "a", tmp_path / "store" / "b")
    (tmp_path / "store" / "a").symlink_to(outside)

    for attempt in (
        parts.send("a/x", upload, 1, 0, b"changed"),
        parts.complete("a/x", upload, [], 6),
        parts.begin("a/y"),
    ):
        with pytest.raises(PermanentRunnerError) as refused:
            await attempt
        assert refused.value.code == "store_denied"
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == {f"x#{upload}": b"theirs"}


async def test_a_link_in_the_place_of_the_upload_is_not_followed(folder: Store, tmp_path: Path) -> None:
    parts = open_parts(folder)
    (tmp_path / "secret").write_bytes(b"secret")
    upload = await parts.begin("a/x")
    (tmp_path / "store" / "a" / f"x#{upload}").unlink()
    (tmp_path / "store" / "a" / f"x#{upload}").symlink_to(tmp_path / "secret")

    for attempt in (parts.send("a/x", upload, 1, 0, b"changed"), parts.complete("a/x", upload, [], 6)):
        with pytest.raises(PermanentRunnerError) as refused:
            await attempt
        assert refused.value.code == "store_denied"
    assert (tmp_path / "secret").read_bytes() == b"secret"


async def test_folders_of_aborted_uploads_go_too(folder: Store, tmp_path: Path) -> None:
    parts = open_parts(folder)
    await parts.begin("dumps/one/x")
    await folder.put("dumps/two/x", b"")

    await parts.abort("dumps/one")

    assert [path.name for path in (tmp_path / "store" / "dumps").iterdir()] == ["two"]


async def test_a_part_is_on_the_disk_before_it_is_noted(folder: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    parts = open_parts(folder)
    upload = await parts.begin("a/x")
    flushed: list[int] = []
    fsync = os.fsync

    def seen(file: int) -> None:
        flushed.append(os.fstat(file).st_size)
        fsync(file)

    monkeypatch.setattr(os, "fsync", seen)
    await parts.send("a/x", upload, 1, 0, b"12345")

    assert flushed == [5]
