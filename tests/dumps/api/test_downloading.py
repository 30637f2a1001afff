"""The file of a dump: exactly what its row names, whole or in part."""

import re
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from paddock.config import Config
from paddock.dumps import downloading
from paddock.storage.parts import part_key
from paddock.storage.store import Store, open_store
from tests.dumps.api.conftest import SQL, Played, Start, error

TAG = f'"{"ab" * 32}"'


@pytest.fixture
async def path(played: Played, start: Start) -> str:
    id = await start()
    await played.complete()
    return f"/export/jobs/{id}/download"


async def test_it_comes_whole_with_all_that_a_browser_needs(ada: httpx2.AsyncClient, path: str) -> None:
    answered = await ada.get(path)

    assert (answered.status_code, answered.content) == (200, SQL)
    headers = answered.headers
    assert headers["content-type"] == "application/sql"
    assert headers["content-length"] == str(len(SQL))
    assert headers["content-disposition"] == "attachment; filename=\"shop.sql\"; filename*=UTF-8''shop.sql"
    assert (headers["etag"], headers["accept-ranges"]) == (TAG, "bytes")
    assert headers["cache-control"] == "private, no-store"
    assert headers["x-content-type-options"] == "nosniff"


async def test_head_tells_the_same_without_the_bytes(
    ada: httpx2.AsyncClient, bob: httpx2.AsyncClient, path: str
) -> None:
    whole, head = await ada.get(path), await ada.head(path)

    assert (head.status_code, head.content) == (200, b"")
    ours = {*whole.headers} - {"x-request-id"}
    assert {name: head.headers[name] for name in ours} == {name: whole.headers[name] for name in ours}
    part = await ada.head(path, headers={"Range": "bytes=10-"})
    assert (part.status_code, part.headers["content-length"]) == (206, str(len(SQL) - 10))
    assert (await bob.head(path)).status_code == 404


@pytest.mark.parametrize(
    ("asked", "status", "content"),
    [
        ("bytes=0-9", 206, SQL[:10]),
        ("bytes=100-", 206, SQL[100:]),
        ("bytes=-7", 206, SQL[-7:]),
        (f"bytes={len(SQL) - 1}-{len(SQL) * 2}", 206, SQL[-1:]),
        ("bytes=5-4", 200, SQL),
        ("bytes=0-1,5-6", 200, SQL),
        ("lines=0-1", 200, SQL),
    ],
)
async def test_a_range(ada: httpx2.AsyncClient, path: str, asked: str, status: int, content: bytes) -> None:
    answered = await ada.get(path, headers={"Range": asked})

    assert (answered.status_code, answered.content) == (status, content)
    if status == 206:
        told = re.fullmatch(rf"bytes (\d+)-(\d+)/{len(SQL)}", answered.headers["content-range"])
        assert told is not None
        assert SQL[int(told[1]) : int(told[2]) + 1] == content


async def test_a_range_beyond_the_end(ada: httpx2.AsyncClient, path: str) -> None:
    answered = await ada.get(path, headers={"Range": f"bytes={len(SQL)}-"})
    assert (answered.status_code, answered.headers["content-range"]) == (416, f"bytes */{len(SQL)}")


async def test_who_has_a_part_of_another_file_gets_it_whole(ada: httpx2.AsyncClient, path: str) -> None:
    same = await ada.get(path, headers={"Range": "bytes=10-", "If-Range": TAG})
    other = await ada.get(path, headers={"Range": "bytes=10-", "If-Range": '"other"'})

    assert (same.status_code, same.content) == (206, SQL[10:])
    assert (other.status_code, other.content) == (200, SQL)


async def test_a_file_of_plain_parts_is_one_file(
    ada: httpx2.AsyncClient, config: Config, played: Played, start: Start
) -> None:
    id = await start()
    attempt = await played.claim()
    made = await played.finished(attempt, objects=3, part_size=1000, size=2500)
    content, store = bytes(range(250)) * 10, open_store(config.object_store)
    await store.delete([made.key])
    for number in range(3):
        await store.put(part_key(made.key, number + 1), content[number * 1000 : (number + 1) * 1000])
    await attempt.finish(result=made.model_dump(mode="json"))

    path = f"/export/jobs/{id}/download"
    assert (await ada.get(path)).content == content
    for first, last in ((0, 0), (999, 1000), (500, 2499), (2000, 2400)):
        part = await ada.get(path, headers={"Range": f"bytes={first}-{last}"})
        assert (part.status_code, part.content) == (206, content[first : last + 1])


async def test_a_name_is_told_in_both_ways(ada: httpx2.AsyncClient, played: Played, start: Start) -> None:
    id = await start()
    await played.complete(file_name='Bestell"ungen\r\nX: ü.sql')
    told = (await ada.get(f"/export/jobs/{id}/download")).headers["content-disposition"]
    assert told == (
        "attachment; filename=\"Bestell_ungen__X: _.sql\"; filename*=UTF-8''Bestell%22ungen%0D%0AX%3A%20%C3%BC.sql"
    )


async def test_an_empty_file_is_a_file(ada: httpx2.AsyncClient, played: Played, start: Start) -> None:
    id = await start()
    await played.complete(content=b"")
    answered = await ada.get(f"/export/jobs/{id}/download")
    assert (answered.status_code, answered.content) == (200, b"")


@pytest.mark.parametrize("end", ["pending", "claimed", "failed", "cancelled"])
async def test_what_is_not_complete_has_no_file(
    ada: httpx2.AsyncClient, played: Played, start: Start, end: str
) -> None:
    id = await start()
    if end != "pending":
        attempt = await played.claim()
        if end == "failed":
            await attempt.finish("permanent")
        if end == "cancelled":
            await ada.delete(f"/export/jobs/{id}")
    for method in ("GET", "HEAD"):
        answered = await ada.request(method, f"/export/jobs/{id}/download")
        assert answered.status_code == 400
        assert answered.headers["x-error-code"] == "job_not_completed"
    assert error(await ada.get(f"/export/jobs/{id}/download"))[2] == "job_not_completed"


async def test_a_file_that_the_store_lost_is_no_empty_answer(
    ada: httpx2.AsyncClient, config: Config, path: str, played: Played
) -> None:
    await open_store(config.object_store).delete(played.files())
    assert error(await ada.get(path))[0] == 503


async def test_a_store_without_links_sends_the_bytes(ada: httpx2.AsyncClient, path: str) -> None:
    answered = await ada.get(path, params={"redirect": 1})
    assert (answered.status_code, answered.content) == (200, SQL)


async def test_a_link_to_the_store_lives_five_minutes_at_most(
    ada: httpx2.AsyncClient, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, timedelta]] = []

    async def sign(store: Store, key: str, expires: timedelta) -> str:
        asked.append((key, expires))
        return "https://bucket.example/x?signature=1"

    monkeypatch.setattr(Store, "sign", sign)
    answered = await ada.get(path, params={"redirect": 1})

    assert (answered.status_code, answered.headers["location"]) == (307, "https://bucket.example/x?signature=1")
    assert answered.headers["cache-control"] == "private, no-store"
    [(key, expires)] = asked
    assert key.startswith("exports/dump_")
    assert expires <= timedelta(minutes=5)
    assert (await ada.get(path)).status_code == 200, "only who asks for it is sent there"


async def test_the_first_bytes_are_read_before_anything_is_promised() -> None:
    async def chunks() -> Any:
        yield b"a"
        yield b"b"

    assert [chunk async for chunk in await downloading._begun(chunks())] == [b"a", b"b"]
