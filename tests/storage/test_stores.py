"""What every store does alike."""

import os
import subprocess
import sys
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import quote

import pytest

from paddock.config import ConfigError
from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.store import CHUNK, PIECE, Source, Store, open_store
from tests.storage.looking import keys
from tests.storage.servers import Server

AWKWARD = ["k=a%2Fb/ü + x.parquet", "a b/~c!$&'()*+,;=:@", "100%/y", "e/[1]{2}", "n#o/#x", "x/..y", "日本/語"]


async def test_a_check_leaves_nothing_behind(store: Store) -> None:
    await store.check()

    assert await keys(store) == []


async def test_what_is_put_is_read_and_may_be_replaced(store: Store) -> None:
    await store.put("a/b", b"first")
    await store.put("a/b", b"second")

    assert await store.read("a/b") == b"second"
    assert await store.size("a/b") == 6


async def test_an_empty_object_is_an_object(store: Store) -> None:
    await store.put("empty", b"")

    assert await store.read("empty") == b""
    assert await store.size("empty") == 0
    assert await keys(store) == ["empty"]


async def test_only_the_first_creates(store: Store) -> None:
    assert await store.create("one", b"first")
    assert not await store.create("one", b"second")

    assert await store.read("one") == b"first"


async def test_a_large_file_goes_by_parts(store: Store, tmp_path: Path) -> None:
    content = os.urandom(2 * CHUNK + 12345)
    (tmp_path / "file").write_bytes(content)

    await store.upload("large", tmp_path / "file")

    assert await store.read("large") == content
    assert (tmp_path / "file").read_bytes() == content


async def test_a_file_is_read_in_small_pieces(s3: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They fit between what rows left behind in the heap; and the store still gets few and large parts."""
    (tmp_path / "file").write_bytes(os.urandom(CHUNK) * 2 + b"end")
    write, read = s3._backend.write, list[int]()

    def watched(key: str, source: Source, size: int) -> None:
        def piece(length: int) -> bytes:
            data = source(length)
            read.append(len(data))
            return data

        write(key, piece, size)

    monkeypatch.setattr(s3._backend, "write", watched)
    await s3.upload("large", tmp_path / "file")

    assert max(read) == PIECE < CHUNK
    found = await s3.entry("large")
    assert found is not None
    assert str(found.tag).strip('"').endswith("-3")


async def test_a_file_given_away_may_be_removed(store: Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"given")

    await store.upload("given", tmp_path / "file", give=True)
    (tmp_path / "file").unlink()

    assert await store.read("given") == b"given"
    assert await keys(store, unfinished=True) == ["given"]


async def test_ranges_end_where_the_object_ends(store: Store) -> None:
    await store.put("ten", b"0123456789")

    assert await store.read_range("ten", 2, 3) == b"234"
    assert await store.read_range("ten", 8, 100) == b"89"
    assert await store.read_range("ten", 10, 5) == b""
    assert await store.read_range("ten", 0, 0) == b""
    assert [chunk async for chunk in store.stream("ten", 7)] == [b"789"]
    assert [chunk async for chunk in store.stream("ten", 1, 2)] == [b"12"]
    assert [chunk async for chunk in store.stream("ten", 20)] == []


@pytest.mark.parametrize("key", AWKWARD)
async def test_a_key_is_kept_as_it_is(store: Store, key: str) -> None:
    await store.put(key, b"x")

    assert await keys(store) == [key]
    assert await store.read(key) == b"x"
    await store.delete([key])
    assert await keys(store) == []


async def test_a_prefix_ends_at_a_slash(store: Store) -> None:
    for key in ("a/1", "a/b/2", "ab/3", "a.4"):
        await store.put(key, b"")

    assert await keys(store, "a") == ["a/1", "a/b/2"]
    assert await keys(store, "nothing/there") == []
    assert (await store.delete_below("a")).count == 2
    assert await keys(store) == ["a.4", "ab/3"]


async def test_a_listing_tells_size_and_time(store: Store) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    await store.put("x", b"123")

    (entry,) = [entry async for entry in store.list()]

    assert entry.size == 3
    assert before < entry.modified < datetime.now(UTC) + timedelta(seconds=2)


async def test_deleting_what_is_not_there_is_fine(store: Store) -> None:
    await store.put("there", b"")

    await store.delete(["missing", "there", "also/missing", "there/not"])
    await store.delete([])

    assert await keys(store) == []
    assert (await store.delete_below("nothing")).count == 0


async def test_what_is_missing_is_said(store: Store) -> None:
    assert await store.size("missing") is None
    for reading in (store.read("missing"), store.read_range("missing", 0, 1), store.copy_to("missing", store, "x")):
        with pytest.raises(PermanentRunnerError, match="'missing' is not in the store") as refused:
            await reading
        assert refused.value.code == "store_not_found"


async def test_copies_within_and_between_stores(store: Store, other: Store) -> None:
    content = os.urandom(CHUNK + 1)
    await store.put("from", content)

    await store.copy_to("from", store, "within")
    await store.copy_to("from", other, "there")
    await other.copy_to("there", store, "and/back")

    assert await store.read("within") == await other.read("there") == await store.read("and/back") == content


@pytest.mark.parametrize("key", ["a/part-00000.parquet", "a b/k=ü"])
async def test_a_link_reads_one_object_for_a_while(store: Store, key: str) -> None:
    await store.put(key, b"content")
    await store.put("secret", b"")

    link = await store.sign(key, timedelta(minutes=5))

    if store.local is not None or store.url.startswith("gs:") or (store.url.startswith("az:") and "=" in key):
        assert link is None
        return
    assert link is not None
    with urllib.request.urlopen(link, timeout=60) as answer:
        assert answer.read() == b"content"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(link.replace(quote(key), "secret"), timeout=60)
    assert refused.value.code == 403
    refused.value.close()


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/a",
        "a/",
        "a//b",
        ".",
        "..",
        "a/../b",
        "../x",
        "a/./b",
        "a\x00b",
        "a\nb",
        "a\\b",
        "x#1",
        "\ud800",
        "é" * 200,
        "x/" * 450 + "x",
    ],
)
async def test_keys_that_mean_something_else_are_refused(folder: Store, key: str) -> None:
    for attempt in (folder.put(key, b""), folder.read(key), folder.size(key), folder.delete([key])):
        with pytest.raises(PermanentRunnerError) as refused:
            await attempt
        assert refused.value.code == "store_bad_key"


@pytest.mark.parametrize("prefix", ["", "/", ".."])
async def test_everything_is_never_deleted_at_once(folder: Store, prefix: str) -> None:
    with pytest.raises(PermanentRunnerError):
        await folder.delete_below(prefix)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://x/y",
        "s3://",
        "s3://key:secret@bucket/x",
        "s3://bucket/x?secret=y",
        "file://host/x",
        "az://container/x",
    ],
)
def test_a_url_that_cannot_be_meant_is_refused_without_its_secrets(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        open_store(url, environ={})

    assert "key:secret" not in str(refused.value)


def test_a_url_as_it_is_shown(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/a%20b").local == tmp_path / "a b"
    assert open_store(f"{tmp_path}/100%25?").local == tmp_path / "100%25?"
    shown = open_store("s3://bucket/a/b/?endpoint=http://localhost:1&region=auto", environ={}).url
    assert shown == "s3://bucket/a/b"


async def test_an_endpoint_in_the_url_is_used(s3_server: Server) -> None:
    environ = {**s3_server.environ, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}

    await open_store(f"{s3_server.url}/x?endpoint={s3_server.endpoint}", environ=environ).check()


LEAVING = """
import asyncio, sys
from paddock.storage.store import open_store

async def main():
    store = open_store(sys.argv[1])
    await asyncio.gather(*(store.put(f"leaving/{number}", b"x" * 1000) for number in range(20)))
    asyncio.ensure_future(store.read("leaving/1"))
    await asyncio.sleep(0)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_process_may_exit_right_after_its_last_call(s3_server: Server) -> None:
    for _ in range(6):
        ended = subprocess.run(
            [sys.executable, "-c", LEAVING, s3_server.url],
            env={**os.environ, **s3_server.environ},
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0


async def test_an_object_is_replaced_only_while_it_is_the_one_that_was_seen(store: Store) -> None:
    assert await store.seen("a/x") is None
    assert await store.replace("a/x", b"one", None)
    assert not await store.replace("a/x", b"two", None)
    first = await store.seen("a/x")
    assert first is not None
    assert first.data == b"one"

    assert await store.replace("a/x", b"two", first)
    assert not await store.replace("a/x", b"three", first)
    await store.delete(["a/x"])
    assert not await store.replace("a/x", b"three", first)

    assert await keys(store, unfinished=True) == []
