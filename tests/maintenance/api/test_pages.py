"""The pages of tables: what they show, what their forms do, and that a name is never markup."""

from collections.abc import AsyncIterator

import httpx2
import pytest
from fastapi import FastAPI

from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.jobs.core import Core
from paddock.maintenance.pages import tables
from paddock.maintenance.routes import router
from paddock.web import pages
from tests.maintenance.api.conftest import Played, line
from tests.web.signed_in import BASE, Browser


@pytest.fixture
def app(core: Core, config: Config) -> FastAPI:
    return create_app(core, config, routers=[router], routes=[*pages.routes(), *tables.routes()])


@pytest.fixture
async def operator(app: FastAPI, core: Core) -> AsyncIterator[Browser]:
    new = NewToken(name="olga", role="ops", owner="olga")
    _, secret = await Tokens(core.db).create(new, actor="test")
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url=BASE) as client:
        answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": BASE})
        assert answer.status_code == 303
        yield Browser(client)


async def test_the_list_and_a_table_say_how_it_is_and_what_would_help(
    grace: httpx2.AsyncClient, bob: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line(), line("well", health="healthy", issues=[], recommended=[]))
    listed = (await grace.get("/tables")).text
    assert "sales.orders" in listed
    assert "sales.well" in listed
    assert "2 shown, 1 of them is ill." in listed
    assert "sales.well" not in (await grace.get("/tables", params={"health": "warning"})).text
    shown = (await grace.get("/tables/lake/sales/orders")).text
    assert "50 small files could become few." in shown
    assert "Plan only" in shown
    assert (await bob.get("/tables/lake/sales/orders")).status_code == 404
    assert "sales.orders" not in (await bob.get("/tables")).text


async def test_the_name_that_events_have_leads_to_the_table(
    grace: httpx2.AsyncClient, bob: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line())
    answer = await grace.get("/tables/lake.sales.orders")
    assert (answer.status_code, answer.headers["location"]) == (303, "/tables/lake/sales/orders")
    [found] = (await grace.get("/api/search?q=orders")).json()["data"]
    assert found["path"] == "/tables/lake/sales/orders"
    for name in ("lake.sales.nothing", "lake", "nothing.sales.orders", "..."):
        assert (await grace.get(f"/tables/{name}")).status_code == 404, name
    assert (await bob.get("/tables/lake.sales.orders")).status_code == 404


async def test_a_name_with_markup_is_text(grace: httpx2.AsyncClient, played: Played) -> None:
    await played.seen(line("<script>alert(1)</script>", "a.b\x1fc"))
    listed = (await grace.get("/tables")).text
    assert "<script>alert(1)" not in listed
    assert "&lt;script&gt;" in listed
    one = await grace.get("/tables/lake/a.b%1Fc/%3Cscript%3Ealert(1)%3C%2Fscript%3E")
    assert "<script>alert(1)" not in one.text


async def test_a_table_that_was_never_loaded_is_refused_in_words(
    operator: Browser, played: Played, unanswered: None
) -> None:
    await played.seen({"namespace": "sales", "name": "orders", "problem": "The store is away.", "code": "x"})
    page = "/tables/lake/sales/orders"
    assert "The store is away." in await operator.read(page)
    said = await operator.refused(f"{page}/maintain", page, 503, action="expire_snapshots", dry_run="off")
    assert "could not be asked" in said


async def test_the_form_of_a_table_makes_a_job_and_a_plan(
    operator: Browser, grace: httpx2.AsyncClient, played: Played
) -> None:
    await played.seen(line())
    page = "/tables/lake/sales/orders"
    planned = await operator.done(f"{page}/maintain", page, action="expire_snapshots", dry_run="on")
    assert planned.startswith(f"{page}?plan=")
    await operator.done(f"{page}/maintain", page, action="expire_snapshots", dry_run="off")
    jobs = (await grace.get("/api/jobs", params={"tag": "table:lake.sales.orders"})).json()["data"]
    made = [(await grace.get(f"/api/jobs/{job['id']}")).json()["data"] for job in jobs]
    assert sorted(bool(job["payload"].get("dry_run")) for job in made) == [False, True]
