"""What downloaders ask for, right and wrong."""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import httpx2
import pytest
from starlette.responses import StreamingResponse

from paddock.config import Config
from paddock.exports import downloading, export_files, plain
from paddock.jobs.core import Core
from paddock.jobs.errors import Refused
from tests.background.ticking import end_expired
from tests.conftest import DatabaseClock
from tests.exports.attacks.making import asked, complete_with_files

CONTENT = b"0123456789"


async def made(core: Core, config: Config, ada: httpx2.AsyncClient, **contents: bytes) -> str:
    export = await asked(ada, format="csv")
    await complete_with_files(core, config, **(contents or {"a": CONTENT}))
    return f"/api/exports/{export['id']}/download"


@pytest.mark.parametrize(
    ("asked_range", "status", "content"),
    [
        (None, 200, CONTENT),
        ("bytes=2-4", 206, b"234"),
        ("bytes=7-", 206, b"789"),
        ("bytes=-3", 206, b"789"),
        ("bytes=0-", 206, CONTENT),
        ("bytes=8-99", 206, b"89"),
        ("bytes=10-", 416, b""),
        ("bytes=-0", 416, b""),
        # What is not understood is ignored: the answer is whole and says so.
        ("bytes=4-2", 200, CONTENT),
        ("bytes=0-1,3-4", 200, CONTENT),
        ("lines=0-1", 200, CONTENT),
        ("bytes=-", 200, CONTENT),
        (f"bytes={'9' * 5_000}-", 200, CONTENT),
    ],
)
async def test_a_range(
    core: Core, config: Config, ada: httpx2.AsyncClient, asked_range: str | None, status: int, content: bytes
) -> None:
    path = await made(core, config, ada)

    answer = await ada.get(path, headers={} if asked_range is None else {"Range": asked_range})

    assert (answer.status_code, answer.content) == (status, content)
    assert ("content-range" in answer.headers) == (status in (206, 416))


async def test_a_range_of_another_file_gets_the_whole_one(core: Core, config: Config, ada: httpx2.AsyncClient) -> None:
    path = await made(core, config, ada, a=CONTENT, b=CONTENT[::-1])
    tags: Any = {}
    for name in ("a.csv", "b.csv"):
        tags[name] = (await ada.get(path, params={"file": name})).headers["etag"]
    assert len(set(tags.values())) == 2, "two files are not the same, though neither has a sum"

    for tag, status in ((tags["a.csv"], 206), (tags["b.csv"], 200), ("Mon, 16 Nov 2026 07:28:00 GMT", 200)):
        headers = {"Range": "bytes=5-", "If-Range": tag}
        answer = await ada.get(path, params={"file": "a.csv"}, headers=headers)
        assert (answer.status_code, answer.content) == (status, CONTENT[5:] if status == 206 else CONTENT)


@pytest.mark.parametrize(
    ("params", "headers"),
    [
        ({"file": "a.csv"}, {}),
        ({"file": "a.csv"}, {"Range": "bytes=2-4"}),
        ({"file": "a.csv"}, {"Range": "bytes=99-"}),
        ({"file": "none.csv"}, {}),
        ({}, {}),
    ],
)
async def test_who_asks_for_the_head_gets_the_same_without_the_body(
    core: Core, config: Config, ada: httpx2.AsyncClient, params: dict[str, str], headers: dict[str, str]
) -> None:
    path = await made(core, config, ada, a=CONTENT, b=CONTENT[::-1])

    whole = await ada.get(path, params=params, headers=headers)
    head = await ada.head(path, params=params, headers=headers)

    assert head.status_code == whole.status_code
    own = ("date", "x-request-id")
    assert {k: v for k, v in head.headers.items() if k not in own} == {
        k: v for k, v in whole.headers.items() if k not in own
    }
    assert int(whole.headers["content-length"]) == len(whole.content)
    assert head.content == b""


async def test_anothers_file_has_no_head(core: Core, config: Config, ada: httpx2.AsyncClient, bob: Any) -> None:
    path = await made(core, config, ada)

    assert (await bob.head(path)).status_code == 404


async def begun(core: Core, config: Config, id: UUID) -> AsyncIterator[bytes]:
    """A download of which the first bytes have come."""
    export = await plain.get(core.db, id)
    assert export is not None
    found = await export_files.files_of(config, export)
    answer = await downloading.send(core.db, found, downloading.find(found, None, None), actor="ada")
    assert isinstance(answer, StreamingResponse)
    body: Any = answer.body_iterator
    assert await anext(body)
    return body  # type: ignore[no-any-return]


def id_of(path: str) -> UUID:
    return UUID(path.split("/")[3])


@pytest.mark.parametrize("contents", [{"a": CONTENT}, {"a": CONTENT, "b": CONTENT}])
async def test_a_download_holds_up_a_deletion(
    core: Core, config: Config, ada: httpx2.AsyncClient, contents: dict[str, bytes]
) -> None:
    path = await made(core, config, ada, **contents)
    body = await begun(core, config, id_of(path))

    refused = await ada.delete(f"/api/exports/{id_of(path)}")
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "export_downloading")
    assert refused.json()["error"]["details"] == {"downloads": ["ada"]}

    assert [chunk async for chunk in body] or len(contents) == 1
    assert (await ada.delete(f"/api/exports/{id_of(path)}")).status_code == 202
    assert (await ada.get(path)).status_code == 409


async def test_a_download_that_was_given_up_holds_up_nothing(
    core: Core, config: Config, ada: httpx2.AsyncClient
) -> None:
    path = await made(core, config, ada)
    body: Any = await begun(core, config, id_of(path))
    await body.aclose()

    assert (await ada.delete(f"/api/exports/{id_of(path)}")).status_code == 202


async def test_the_end_of_its_time_waits_for_a_download_but_not_for_one_that_died(
    core: Core, config: Config, ada: httpx2.AsyncClient, clock: DatabaseClock
) -> None:
    path = await made(core, config, ada)
    await clock.advance(timedelta(days=8))
    body = await begun(core, config, id_of(path))
    assert await end_expired(core, "exports") == 0

    await clock.advance(minutes=3)
    assert await end_expired(core, "exports") == 1
    assert [chunk async for chunk in body] == []
    async with core.db.transaction() as tx:
        assert await tx.fetchval("SELECT count(*) FROM export_downloads") == 0


async def test_what_is_being_deleted_is_not_downloaded(core: Core, config: Config, ada: httpx2.AsyncClient) -> None:
    path = await made(core, config, ada)
    export = await plain.get(core.db, id_of(path))
    assert export is not None
    found = await export_files.files_of(config, export)
    await plain.delete(core, export.id, actor="ada")

    with pytest.raises(Refused, match="is being deleted"):
        await downloading.send(core.db, found, downloading.find(found, None, None), actor="ada")
