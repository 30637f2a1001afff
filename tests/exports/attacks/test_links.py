"""Short-lived links to the store itself, for those who may have the export."""

import uuid
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from paddock.config import Config
from paddock.jobs.core import Core
from tests.exports.attacks.making import asked, complete_with_files
from tests.mappings.conftest import ENGINES
from tests.storage.servers import Server


@pytest.fixture
def config(s3_server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Config:
    for name, value in s3_server.environ.items():
        monkeypatch.setenv(name, value)
    return Config(data=tmp_path / "data", object_store=f"{s3_server.url}/{uuid.uuid4()}", engines=ENGINES)


async def files(client: httpx2.AsyncClient, made: dict[str, Any], **sign: bool) -> httpx2.Response:
    return await client.get(f"/api/exports/{made['id']}/files", params=sign)


async def test_whoever_asks_for_links_reads_the_files_with_them_and_nothing_else(
    core: Core, config: Config, ada: httpx2.AsyncClient, bob: httpx2.AsyncClient
) -> None:
    made = await asked(ada, format="csv")
    contents = {"a": b"1\n2\n", "b": b"3\n"}
    await complete_with_files(core, config, **contents)

    listed = (await files(ada, made, sign=True)).json()["data"]

    assert listed["signed"] is True
    async with httpx2.AsyncClient() as anybody:
        for file in listed["files"]:
            assert int(parse_qs(urlsplit(file["url"]).query)["X-Amz-Expires"][0]) <= 900
            assert (await anybody.get(file["url"])).content == contents[file["name"].removesuffix(".csv")]
            assert (await anybody.delete(file["url"])).status_code == 403
            assert (await anybody.get(file["url"].partition("?")[0])).status_code == 403
    plain = (await files(ada, made)).json()["data"]
    assert (plain["signed"], {file["url"] for file in plain["files"]}) == (False, {None})
    assert (await files(bob, made, sign=True)).status_code in (403, 404)
