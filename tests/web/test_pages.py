"""The dashboard's pages in a real browser, and what they must refuse."""

import contextlib
from collections.abc import AsyncIterator
from uuid import uuid4

import httpx2
import pytest
from playwright.async_api import Browser, async_playwright

from paddock.api import signin
from paddock.api.app import create_app
from paddock.api.tokens import NewToken, Tokens
from paddock.config import Config
from paddock.jobs import wire
from paddock.jobs.core import Core
from paddock.web import pages
from paddock.web.pages.lost import lost
from tests.api.conftest import serving
from tests.playing import read, submit, worker
from tests.web.chromium import chromium

MARKUP = "<script>alert(1)</script> \u202eרע 🐎 " + "long" * 200


@pytest.fixture
async def url(core: Core) -> AsyncIterator[str]:
    app = create_app(core, Config(), host="127.0.0.1", routes=pages.routes(), lost=lost)
    async with serving(app) as (_, address):
        yield address


async def make_token(core: Core, role: str = "admin", owner: str = "ann") -> tuple[Tokens, str]:
    tokens = Tokens(core.db)
    _, secret = await tokens.create(NewToken(name=owner, role=role, owner=owner), actor="test")  # type: ignore[arg-type]
    return tokens, secret


@contextlib.asynccontextmanager
async def launched() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest.mark.browser
@pytest.mark.slow
async def test_a_link_signs_in_once_and_shows_jobs_and_a_job_can_be_cancelled_and_retried(core: Core, url: str) -> None:
    tokens, secret = await make_token(core)
    caller = await tokens.by_secret(secret)
    assert caller is not None
    code = await signin.create_link(tokens, caller.token_id)
    [failed, waiting] = await submit(core, n=2)
    attempt = await (await worker(core)).claim_one()
    assert attempt.id == failed
    await attempt.finish("permanent", error=wire.Error(code="broken", message=MARKUP))

    async with launched() as browser:
        page = await browser.new_page(viewport={"width": 400, "height": 800})
        problems: list[str] = []
        page.on("console", lambda message: problems.append(message.text))
        page.on("pageerror", lambda error: problems.append(str(error)))
        await page.goto(f"{url}/sign-in#code={code}")
        await page.wait_for_url(f"{url}/")
        await page.goto(f"{url}/jobs")
        assert "<script>alert(1)</script>" in await page.inner_text("table")

        await page.click(f"a[href='/jobs/{waiting}']")
        await page.click("text=Cancel job")
        await page.click("#confirm button[value=yes]")
        await page.wait_for_selector(".sentence .is-cancelled")
        assert (await read(core, waiting)).status == "cancelled"

        await page.goto(f"{url}/jobs/{failed}")
        await page.click("text=Retry job")
        await page.click("#confirm button[value=yes]")
        await page.wait_for_selector(".sentence .is-pending")
        overflow = await page.evaluate("document.documentElement.scrollWidth > document.documentElement.clientWidth")
        assert not overflow, "a page must fit 400 px"
        assert problems == []

        second = await browser.new_page()
        await second.goto(f"{url}/sign-in#code={code}")
        await second.wait_for_selector(".problem")


async def test_a_browser_that_is_not_signed_in_is_shown_the_way_back(url: str) -> None:
    async with httpx2.AsyncClient(base_url=url) as client:
        answer = await client.get("/jobs/abc")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=%2Fjobs%2Fabc"


@pytest.mark.parametrize(
    "path", ["//evil.example", "/\\evil.example", "/\t/evil.example", "/\n\\evil.example", "https://evil.example", ""]
)
async def test_signing_in_leads_nowhere_else(core: Core, url: str, path: str) -> None:
    _, secret = await make_token(core)
    async with httpx2.AsyncClient(base_url=url) as client:
        form = {"token": secret, "next": path}
        answer = await client.post("/sign-in", data=form, headers={"origin": url})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "httponly" in answer.headers["set-cookie"].lower()


async def test_a_form_without_its_csrf_token_changes_nothing(core: Core, url: str) -> None:
    _, secret = await make_token(core)
    [id] = await submit(core)
    async with signed_in(url, secret) as client:
        answer = await client.post(f"/jobs/{id}/cancel", data={"csrf": "guessed"}, headers={"origin": url})
    assert answer.status_code == 403
    assert (await read(core, id)).status == "pending"


async def test_an_analyst_finds_nothing_of_anothers(core: Core, url: str) -> None:
    _, secret = await make_token(core, "analyst", "bob")
    [anns] = await submit(core, owner="ann")
    [bobs] = await submit(core, owner="bob")
    async with signed_in(url, secret) as client:
        listed = (await client.get("/jobs")).text
        assert str(bobs) in listed
        assert str(anns) not in listed
        assert (await client.get(f"/jobs/{anns}")).status_code == 404
        assert (await client.get(f"/jobs/{bobs}")).status_code == 200


async def test_every_page_has_a_strict_policy_and_answers_bad_addresses_calmly(core: Core, url: str) -> None:
    _, secret = await make_token(core)
    async with signed_in(url, secret) as client:
        for path, status in {
            "/": 200,
            "/jobs?cursor=nonsense": 400,
            "/jobs?status=nonsense": 422,
            "/jobs?q=%25_%5C'": 200,
            "/jobs/nonsense": 404,
        }.items():
            answer = await client.get(path)
            assert answer.status_code == status, path
            assert "'unsafe" not in answer.headers["content-security-policy"]
        assert (await client.get("/static/style.css")).status_code == 200
        assert (await client.get("/static/..%2fpages.py")).status_code == 404


BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


async def test_where_there_is_nothing_a_browser_is_told_so_in_the_frame_and_a_program_in_json(
    core: Core, url: str
) -> None:
    _, secret = await make_token(core)
    async with httpx2.AsyncClient(base_url=url) as stranger, signed_in(url, secret) as ann:
        for path, status in {"/nonesuch": 404, "/jobs/a/b/c": 404, "/sign-out": 405, "/static/none.js": 404}.items():
            for client, navigation in ((ann, True), (stranger, False)):
                page = await client.get(path, headers=BROWSER)
                assert (page.status_code, page.headers["content-type"]) == (status, "text/html; charset=utf-8"), path
                assert "<h1>There is nothing" in page.text
                assert ('<nav class="pages"' in page.text) == navigation
                assert "'unsafe" not in page.headers["content-security-policy"]
                told = await client.get(path)
                assert (told.status_code, "error" in told.json()) == (status, True)
        posted = await ann.post("/nonesuch", headers=BROWSER)
        assert (posted.status_code, posted.json()["error"]["code"]) == (404, "not_found")
        unseen = await ann.get(f"/api/jobs/{uuid4()}", headers=BROWSER)
        assert unseen.json()["error"]["code"] == "not_found", "what a route of the API answers stays JSON"


@contextlib.asynccontextmanager
async def signed_in(url: str, secret: str) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(base_url=url) as client:
        answer = await client.post("/sign-in", data={"token": secret}, headers={"origin": url})
        assert answer.status_code == 303
        yield client
