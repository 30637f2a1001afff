"""The name of a database is nowhere for those who may not have it, and looks like a name that does not exist."""

import httpx2
from fastapi import FastAPI
from pydantic import SecretStr

from paddock.api.app import create_app
from paddock.config import Config
from paddock.dumps.settings import DumpSettings
from paddock.jobs.core import Core
from paddock.web import pages
from tests.api.conftest import BASE, Clients


async def test_kinds_name_no_database_that_is_not_theirs(clients: Clients) -> None:
    expected = {"ada": ["dump:shop"], "bob": [], "carol": ["dump:shop"], "grace": ["dump:books", "dump:shop"]}
    for name, kinds in expected.items():
        listed = (await (await clients(name)).get("/api/kinds")).json()["data"]
        assert sorted(kind["name"] for kind in listed if kind["name"].startswith("dump:")) == kinds


async def test_pages_name_no_database_that_is_not_theirs(core: Core, config: Config) -> None:
    made = Clients(create_app(core, config, routes=pages.routes()))
    async with made.stack:
        await made.token("ada", "analyst", databases=[])
        ada = await made("ada")
        await ada.post("/sign-in", data={"token": made.secrets["ada"]}, headers={"origin": BASE})
        for address in ("/kinds", "/jobs", "/dumps", "/dumps/new"):
            text = (await ada.get(address)).text
            assert "shop" in text, address
            assert "books" not in text, address
        assert (await ada.get("/kinds/dump:shop")).status_code == 200
        assert (
            (await ada.get("/kinds/dump:books")).status_code == (await ada.get("/kinds/dump:none")).status_code == 404
        )


async def test_a_kind_one_may_not_have_is_refused_like_one_that_is_none(clients: Clients) -> None:
    bob = await clients("bob")

    async def refusal(kind: str) -> tuple[int, str, object]:
        single = await bob.post("/api/jobs", json={"kind": kind})
        batch = await bob.post("/api/jobs/batch", json={"jobs": [{"kind": kind}]})
        assert batch.json() == single.json()
        return single.status_code, single.text.replace(kind, "KIND"), None

    assert await refusal("dump:books") == await refusal("dump:none")
    carol = await (await clients("carol")).post("/api/jobs", json={"kind": "dump:shop"})
    assert carol.json()["error"]["code"] == "kind_internal"


async def test_who_names_no_database_learns_of_none(app: FastAPI, clients: Clients, config: Config, core: Core) -> None:
    bob = await clients("bob")
    assert "books" not in (await bob.get("/export/dump")).text
    usual = config.with_settings(config.of(DumpSettings).model_copy(update={"default_database": "books"}))
    single = config.with_settings(
        config.of(DumpSettings).model_copy(update={"databases": {"books": config.of(DumpSettings).databases["books"]}})
    )
    for changed in (usual, single):
        app.state.plane.config = changed
        for client in (bob, await clients("ada")):
            answer = await client.post("/export/dump", json={"async": True})
            assert "books" not in answer.text
    app.state.plane.config = usual
    assert (await (await clients("grace")).post("/export/dump", json={"async": True})).status_code == 202


async def test_metrics_that_anybody_may_read_name_no_database(core: Core, config: Config) -> None:
    core.metrics.queue_depth("dump:shop", "pending").set(1)
    core.metrics.queue_depth("probe", "pending").set(1)

    async def metrics(config: Config) -> str:
        headers = {"Authorization": "Bearer scrape"}
        transport = httpx2.ASGITransport(create_app(core, config))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE, headers=headers) as client:
            return (await client.get("/metrics")).text

    text = await metrics(config)
    assert 'kind="probe"' in text
    assert "shop" not in text
    assert "shop" in await metrics(config.model_copy(update={"metrics_token": SecretStr("scrape")}))
