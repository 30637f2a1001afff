"""What hardly any capability declares is asked where its declaration says: at a worker's start and on its machine, beside the
workers' API, and before a draft is removed."""

import asyncio
import os
from collections.abc import Iterator
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import httpx2
import pytest
from pydantic import SecretStr

from paddock import capability, work
from paddock.api.access import table_of
from paddock.api.app import create_app, create_internal_app
from paddock.config import Config, ConfigError
from paddock.exports import leftovers
from paddock.jobs.core import Core
from paddock.storage.drafts import new_draft_id
from paddock.storage.store import open_store
from tests.extending import rare

A_LONG_TIME_AGO = 1_000_000_000


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    point = EntryPoint("rare", "tests.extending.rare:RARE", capability.GROUP)
    monkeypatch.setattr(capability, "entry_points", lambda group: EntryPoints([point]))
    capability._loaded.cache_clear()
    rare.needed.clear()
    rare.chores = asyncio.Queue()
    yield
    monkeypatch.undo()
    capability._loaded.cache_clear()


def worker(**settings: object) -> Config:
    return Config.model_validate({"server": "http://127.0.0.1:9", "token": SecretStr("pdk_x"), **settings})


async def test_a_worker_does_not_start_where_the_settings_are_refused() -> None:
    with pytest.raises(ConfigError, match="rare wants no concurrency of 13"):
        await work.work(worker(concurrency=13))


async def test_a_chore_is_done_at_the_start_and_again_though_it_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "CHORES_SECONDS", 0.0)
    doing = asyncio.create_task(work.do_chores(worker()))
    try:
        async with asyncio.timeout(60):
            first, second = await rare.chores.get(), await rare.chores.get()
    finally:
        doing.cancel()
        await asyncio.wait([doing])

    assert first is not second


@pytest.mark.parametrize("port", [None, 0])
async def test_an_internal_route_is_where_the_workers_api_is(core: Core, port: int | None) -> None:
    app = create_app(core, Config(internal_port=port))
    inside = app if port is None else create_internal_app(app)

    assert ("GET /internal/rare" in table_of(app.routes)) is (port is None)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(inside), base_url="http://localhost") as client:
        assert (await client.get("/internal/rare")).json() == {"rare": True}


async def test_a_draft_that_it_needs_is_kept(core: Core, tmp_path: Path) -> None:
    config = Config(object_store=tmp_path.as_uri())
    store = open_store(config.object_store)
    needed, nobodys = f"rare/{new_draft_id()}", f"rare/{new_draft_id()}"
    for draft in (needed, nobodys):
        await store.put(f"{draft}/part", b"a")
        os.utime(tmp_path / draft / "part", (A_LONG_TIME_AGO,) * 2)
    rare.needed.add(needed)

    assert await leftovers.collect(core.db, config) == {"removed": 1, "bytes": 1}

    assert await store.size(f"{needed}/part") == 1
    assert await store.size(f"{nobodys}/part") is None
