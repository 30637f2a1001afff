"""A dump in a real S3, and in a store where its parts stay objects: downloaded whole, and from wherever one asks."""

import asyncio
import urllib.request
from collections.abc import Mapping
from email.message import Message
from pathlib import Path

import pytest

from paddock.storage.store import open_store
from tests.dumps.whole import Place, place, undisturbed
from tests.processes.running import wait_for
from tests.storage.servers import Server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

MEGABYTES = {"s3_server": 12 << 20, "azure_server": 1 << 18}


def ranged(paddock: Place, id: str, asked: str, **more: str) -> tuple[int, bytes, Message]:
    request = urllib.request.Request(f"{paddock.up.address['url']}/export/jobs/{id}/download")
    headers = {"Authorization": f"Bearer {paddock.up.token}", "Range": asked, **more}
    for name, value in headers.items():
        request.add_header(name.replace("_", "-"), value)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return answer.status, answer.read(), answer.headers


async def listed(url: str, environ: Mapping[str, str]) -> list[str]:
    return [entry.key async for entry in open_store(url, environ=environ).list("")]


@pytest.mark.parametrize("name", MEGABYTES)
async def test_a_dump_is_downloaded_whole_and_by_ranges(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server: Server = request.getfixturevalue(name)
    environment = {**server.environ, "PADDOCK_OBJECT_STORE": f"{server.url}/stored", "AZURE_ALLOW_HTTP": "true"}
    with place(rows=1_000, environment=environment, bulk=MEGABYTES[name]) as paddock:
        id = paddock.start("shop", "sql")
        status = await asyncio.to_thread(paddock.ended, id)
        assert status["status"] == "completed", status
        part = status["partBytes"]
        data = await asyncio.to_thread(paddock.download, id)
        assert data == await undisturbed(paddock, id, tmp_path)
        assert len(data) > 2 * part, "else there is no bound to cross"

        for start, end in (
            (0, 9),
            (part - 5, part + 5),
            (part, 2 * part - 1),
            (part - 1, 2 * part),
            (len(data) - 7, len(data) - 1),
        ):
            code, found, headers = await asyncio.to_thread(ranged, paddock, id, f"bytes={start}-{end}")
            assert code == 206
            assert headers["Content-Range"] == f"bytes {start}-{end}/{len(data)}"
            assert found == data[start : end + 1]
        code, found, headers = await asyncio.to_thread(ranged, paddock, id, "bytes=-3", If_Range=headers["ETag"])
        assert (code, found) == (206, data[-3:])
        assert (await asyncio.to_thread(ranged, paddock, id, "bytes=-3", If_Range='"another"'))[:2] == (200, data)

        url, environ = f"{server.url}/stored", server.environ
        assert len(await listed(url, environ)) == (1 if name == "s3_server" else -(-len(data) // part))
        await asyncio.to_thread(paddock.client.request, "DELETE", f"/export/jobs/{id}")
        assert not paddock.client.request("GET", "/export/jobs")["result"], "it is not shown while it goes"
        await asyncio.to_thread(wait_for, "its objects are gone", lambda: not asyncio.run(listed(url, environ)))
