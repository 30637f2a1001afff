"""Uploads by parts: what every store does alike."""

import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

import pytest

from paddock.jobs.errors import PermanentRunnerError
from paddock.storage.failures import UploadGone
from paddock.storage.parts import Parts, Whole, open_parts, read
from paddock.storage.store import Store, open_store
from tests.storage.looking import keys
from tests.storage.servers import Server

KEY = "dumps/one/draft.sql"


@pytest.fixture
def parts(store: Store) -> Parts:
    return open_parts(store)


def content(parts: Parts, *, number: int = 3) -> list[bytes]:
    """Parts of one size, the last one shorter."""
    size = max(parts.least, 1000)
    return [os.urandom(size) for _ in range(number - 1)] + [os.urandom(size // 3)]


async def sent(parts: Parts, key: str, upload: str, datas: Sequence[bytes]) -> list[str]:
    size = len(datas[0])
    return [await parts.send(key, upload, number + 1, number * size, data) for number, data in enumerate(datas)]


async def complete(parts: Parts, key: str, upload: str, datas: Sequence[bytes], etags: Sequence[str]) -> Whole:
    return await parts.complete(key, upload, etags, sum(map(len, datas)))


async def made(parts: Parts, key: str, datas: Sequence[bytes]) -> tuple[str, list[str], Whole]:
    upload = await parts.begin(key)
    etags = await sent(parts, key, upload, datas)
    return upload, etags, await complete(parts, key, upload, datas, etags)


async def whole_of(store: Store, key: str, whole: Whole, datas: Sequence[bytes]) -> bytes:
    return b"".join([data async for data in read(store, key, whole.objects, len(datas[0]), whole.size)])


def is_one_object(store: Store) -> bool:
    return not store.url.startswith(("az:", "gs:"))


async def test_parts_sent_in_any_order_and_twice_become_one_file(store: Store, parts: Parts) -> None:
    datas = content(parts)
    size = len(datas[0])
    upload = await parts.begin(KEY)

    etags = {
        number: await parts.send(KEY, upload, number, (number - 1) * size, datas[number - 1])
        for number in (3, 1, 2, 1, 3)
    }
    whole = await complete(parts, KEY, upload, datas, [etags[1], etags[2], etags[3]])

    assert whole.size == sum(map(len, datas))
    assert whole.objects == (0 if is_one_object(store) else 3)
    assert await whole_of(store, KEY, whole, datas) == b"".join(datas)
    if is_one_object(store):
        assert await keys(store, unfinished=True) == [KEY]
    else:
        assert await keys(store) == [f"{KEY}/00000{number}" for number in (1, 2, 3)]


async def test_one_part_may_be_all_and_may_be_empty(store: Store, parts: Parts) -> None:
    for key, data in (("a/small", b"x"), ("a/empty", b"")):
        _, _, whole = await made(parts, key, [data])

        assert whole.size == len(data)
        assert b"".join([piece async for piece in read(store, key, whole.objects, 1000, whole.size)]) == data


async def test_nobody_sees_it_before_it_is_complete(store: Store, parts: Parts) -> None:
    upload = await parts.begin(KEY)
    await sent(parts, KEY, upload, content(parts))

    assert await store.size(KEY) is None
    if is_one_object(store):
        assert await keys(store) == []


async def test_the_etag_is_of_the_content_and_the_same_everywhere(parts: Parts) -> None:
    datas = [b"x" * max(parts.least, 1000), b"y"]

    _, first, whole = await made(parts, "a/first", datas)
    _, second, again = await made(parts, "a/second", datas)

    assert first == second
    assert whole.etag == again.etag
    assert whole.etag.endswith("-2")


async def test_a_completion_whose_answer_was_lost_is_repeated(store: Store, parts: Parts) -> None:
    datas = content(parts)
    upload, etags, whole = await made(parts, KEY, datas)

    assert await complete(open_parts(store), KEY, upload, datas, etags) == whole
    assert await whole_of(store, KEY, whole, datas) == b"".join(datas)


async def test_what_is_there_under_the_key_is_not_taken_for_another(store: Store, parts: Parts) -> None:
    datas = content(parts)
    upload = await parts.begin(KEY)
    etags = await sent(parts, KEY, upload, datas)
    await parts.abort("dumps")
    await store.put(KEY, b"something else")

    with pytest.raises(UploadGone) as gone:
        await complete(parts, KEY, upload, datas, etags)

    assert gone.value.code == "upload_gone"
    assert await store.read(KEY) == b"something else"


async def test_an_upload_that_lacks_a_part_is_not_completed(store: Store, parts: Parts) -> None:
    datas = content(parts)
    upload = await parts.begin(KEY)
    etags = await sent(parts, KEY, upload, datas[:2])

    with pytest.raises(UploadGone):
        await complete(parts, KEY, upload, datas, [*etags, etags[0]])

    assert await store.size(KEY) is None


async def test_who_is_late_changes_nothing_that_a_reader_reads(store: Store, parts: Parts) -> None:
    datas = content(parts)
    upload, etags, whole = await made(parts, KEY, datas)
    before = await keys(store, unfinished=True)
    late = open_parts(store)

    with pytest.raises(UploadGone):
        await late.send(KEY, upload, 2, len(datas[0]), b"z" * len(datas[1]))
    assert await complete(late, KEY, upload, datas, etags) == whole

    assert await whole_of(store, KEY, whole, datas) == b"".join(datas)
    assert await keys(store, unfinished=True) == before


async def test_who_was_aborted_leaves_nothing(store: Store, parts: Parts) -> None:
    datas = content(parts)
    upload = await parts.begin(KEY)
    etags = await sent(parts, KEY, upload, datas)

    assert await parts.abort("dumps/one") == 1

    late = open_parts(store)
    with pytest.raises(UploadGone, match=f"'{KEY}' is no longer in the store"):
        await late.send(KEY, upload, 1, 0, datas[0])
    with pytest.raises(UploadGone):
        await complete(late, KEY, upload, datas, etags)
    assert await keys(store, unfinished=True) == []
    assert await parts.abort("dumps/one") == 0


async def test_every_other_upload_below_a_prefix_is_aborted(store: Store, parts: Parts) -> None:
    datas = content(parts, number=2)
    finished, kept, others, beside = "dumps/one/a", "dumps/one/b", ("dumps/one/c", "dumps/one/d/e"), "dumps/one_more/f"
    _, _, whole = await made(parts, finished, datas)
    uploads = {key: await parts.begin(key) for key in (kept, beside, *others)}
    etags = {key: await sent(parts, key, upload, datas) for key, upload in uploads.items()}
    await store.put("dumps/one/c/state-1", b"no part")

    assert await parts.abort("dumps/one", keep=kept) == 2

    for key in others:
        with pytest.raises(UploadGone):
            await complete(parts, key, uploads[key], datas, etags[key])
    for key in (kept, beside):
        ended = await complete(parts, key, uploads[key], datas, etags[key])
        assert await whole_of(store, key, ended, datas) == b"".join(datas)
    assert await whole_of(store, finished, whole, datas) == b"".join(datas)
    assert await store.read("dumps/one/c/state-1") == b"no part"


async def test_an_upload_is_aborted_by_its_own_key_too(store: Store, parts: Parts) -> None:
    datas = content(parts, number=2)
    beside = "dumps/one/draft.sql.gz"
    uploads = {key: await parts.begin(key) for key in (KEY, beside, "top")}
    etags = await sent(parts, beside, uploads[beside], datas)

    assert await parts.abort(KEY, keep=KEY) == 0
    assert await parts.abort(KEY) == 1
    assert await parts.abort("top") == 1
    assert await parts.abort("missing/folder") == 0

    with pytest.raises(UploadGone):
        await parts.send(KEY, uploads[KEY], 1, 0, datas[0])
    whole = await complete(parts, beside, uploads[beside], datas, etags)
    assert await whole_of(store, beside, whole, datas) == b"".join(datas)


async def test_two_begun_under_one_key_are_one_in_the_end(store: Store, parts: Parts) -> None:
    datas = content(parts, number=2)
    lost = await parts.begin(KEY)

    _, etags, whole = await made(parts, KEY, datas)

    assert await parts.abort("dumps") == 0
    assert await complete(parts, KEY, lost, datas, etags) == whole
    with pytest.raises(UploadGone):
        await parts.send(KEY, lost, 1, 0, b"z" * len(datas[0]))
    assert await whole_of(store, KEY, whole, datas) == b"".join(datas)


async def test_what_is_open_goes_with_its_prefix(store: Store, parts: Parts) -> None:
    datas = content(parts)
    upload = await parts.begin(KEY)
    etags = await sent(parts, KEY, upload, datas)
    _, _, _ = await made(parts, "dumps/one/other.sql", datas)

    assert (await store.delete_below("dumps/one")).count > 1

    assert await keys(store, unfinished=True) == []
    assert await parts.abort("dumps") == 0
    with pytest.raises(UploadGone):
        await complete(parts, KEY, upload, datas, etags)


async def test_ranges_do_not_care_for_parts(store: Store, parts: Parts) -> None:
    datas = content(parts)
    size, end = len(datas[0]), sum(map(len, datas))
    _, _, whole = await made(parts, KEY, datas)
    content_ = b"".join(datas)

    for start, length in (
        (0, 1),
        (size - 1, 2),
        (size, size),
        (size - 5, size + 10),
        (end - 1, 100),
        (end, 1),
        (7, None),
    ):
        found = [piece async for piece in read(store, KEY, whole.objects, size, end, start, length)]
        assert b"".join(found) == content_[start : None if length is None else start + length]


async def test_a_file_that_is_gone_is_said(store: Store, parts: Parts) -> None:
    datas = content(parts)
    _, _, whole = await made(parts, KEY, datas)
    await store.delete_below("dumps")

    with pytest.raises(PermanentRunnerError) as refused:
        await whole_of(store, KEY, whole, datas)

    assert refused.value.code == "store_not_found"


@pytest.mark.parametrize("key", ["", "../x", "a//b", "x#1"])
async def test_a_key_that_means_something_else_is_refused(parts: Parts, key: str) -> None:
    for attempt in (
        parts.begin(key),
        parts.send(key, "1", 1, 0, b""),
        parts.abort(key),
        parts.complete(key, "1", [], 0),
    ):
        with pytest.raises(PermanentRunnerError) as refused:
            await attempt
        assert refused.value.code == "store_bad_key"


KILLED = """
import asyncio, os, signal, sys
from paddock.storage.parts import open_parts
from paddock.storage.store import open_store

async def main():
    parts = open_parts(open_store(sys.argv[1]))
    upload = await parts.begin(sys.argv[2])
    etag = await parts.send(sys.argv[2], upload, 1, 0, b"x" * int(sys.argv[3]))
    print(upload, etag, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


@pytest.mark.parametrize("kind", ["local", "s3"])
async def test_another_goes_on_where_one_was_killed(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    url, environ = str(tmp_path / "store"), dict[str, str]()
    if kind == "s3":
        server: Server = request.getfixturevalue("s3_server")
        url, environ = f"{server.url}/{uuid.uuid4()}", {**server.environ}
    store = open_store(url, environ=environ)
    size = 5 << 20
    command = [sys.executable, "-c", KILLED, url, KEY, str(size)]
    killed = subprocess.run(command, env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True, check=False)
    assert killed.returncode == -9
    upload, etag = killed.stdout.split()

    parts = open_parts(store)
    rest = await parts.send(KEY, upload, 2, size, b"the rest")
    whole = await parts.complete(KEY, upload, [etag, rest], size + 8)

    assert await whole_of(store, KEY, whole, [b"x" * size]) == b"x" * size + b"the rest"
