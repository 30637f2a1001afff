"""The overview as people see it: what goes wrong is said within seconds, without a reload and aloud."""

import re

from playwright.async_api import expect

from paddock.client import Client
from tests.web.browser.conftest import LOOKS, Person, axe, fits, settled, shot
from tests.web.browser.proxy import Proxy

LIVE_MS = 60_000  # a pass over the figures every 10 s, then the page's own turn


async def test_what_goes_wrong_is_said_without_a_reload_and_marked_in_the_charts(
    person: Person, jobs: Client, proxy: Proxy
) -> None:
    page = await person("ops", base=proxy.address)
    await page.goto("")
    await settled(page)
    await page.evaluate("window.stayed = true")
    await expect(page.locator("#chart-throughput canvas")).to_be_visible()

    jobs.request("POST", "/api/kinds/probe_blocking/pause", body={"reason": "the table is <b>locked</b>"})
    try:
        failed = [jobs.submit("probe", {"fail": "No. " + "long" * 50})["id"] for _ in range(3)]
        for id in failed:
            jobs.wait(id, 60)
        verdict = page.locator(".verdict")
        await expect(verdict).to_contain_text("paused: probe_blocking, for", timeout=LIVE_MS)
        await expect(verdict).to_contain_text(re.compile("failures of probe|kinds have failures"), timeout=LIVE_MS)
        await expect(page.locator("#announcer")).to_contain_text("paused: probe_blocking", timeout=LIVE_MS)
        row = page.locator("#failures tr", has=page.get_by_role("link", name="probe", exact=True))
        await expect(row.first).to_be_visible(timeout=LIVE_MS)
        marked = page.locator(".happened li", has_text="the table is <b>locked</b>")
        await expect(marked).to_contain_text("probe_blocking paused", timeout=LIVE_MS)
        assert await page.evaluate("window.stayed")

        await page.locator("#chart-failures [data-plot]").hover()
        await expect(page.locator("#chart-failures .plot-tip")).to_contain_text("failed")
        await expect(page.locator("#chart-wait .plot-tip")).to_contain_text("p95")
        await shot(page, "overview-live")

        await page.get_by_role("navigation", name="How far back").get_by_role("link", name="24 h").click()
        await expect(page).to_have_url(f"{proxy.address}/?range=24h")
        await expect(page.get_by_role("heading", name="The last 24 hours")).to_be_visible()
        code = page.locator("#failures tbody a.code").first
        name = await code.inner_text()
        await code.click()
        await expect(page).to_have_url(re.compile(rf"/jobs\?kind=\w+&status=failed&error_code={name}$"))
    finally:
        jobs.request("POST", "/api/kinds/probe_blocking/resume")


@LOOKS
async def test_it_reads_well_with_its_figures_open(
    person: Person, jobs: Client, jobs_of_ada: Client, theme: str, width: int
) -> None:
    jobs_of_ada.wait(jobs_of_ada.submit("probe")["id"], 60)
    jobs.wait(jobs.submit("probe", {"fail": "The table 'flights' is locked."})["id"], 60)
    page = await person("ops", theme=theme, width=width)
    await page.goto("/?range=15m")
    await settled(page)
    for chart in ("throughput", "wait"):
        await page.locator(f"#chart-{chart} summary").click()
        await expect(page.locator(f"#chart-{chart}").get_by_role("table")).to_be_visible()
    await fits(page)
    await axe(page)
    await page.evaluate("scrollTo(0, 0)")
    await shot(page, "overview-figures")
    own = await person("analyst", theme=theme, width=width)
    await own.goto("/")
    await settled(own)
    await fits(own)
    await axe(own)
    await shot(own, "overview-own")


async def test_what_arrives_moves_nothing_and_leaves_what_is_open(person: Person, jobs: Client) -> None:
    page = await person("ops")
    await page.goto("/")
    await settled(page)
    await page.locator("#chart-backlog summary").click()
    places = "['#charts-heading', '#chart-wait', '#failures'].map((one) => document.querySelector(one).offsetTop)"
    height = "document.querySelector('.verdict').offsetHeight"
    before = await page.evaluate(places), await page.evaluate(height)
    canvas = await page.locator("#chart-throughput canvas").element_handle()
    for _ in range(2):
        async with page.expect_response(lambda answer: "charts" in answer.request.headers.get("x-paddock-regions", "")):
            pass
        await page.evaluate("new Promise(requestAnimationFrame)")
    grown = await page.evaluate(height) - before[1]  # a sentence that has become longer says something new
    assert [place - grown for place in await page.evaluate(places)] == before[0]
    assert await page.locator("#chart-backlog details").evaluate("details => details.open")
    assert canvas is not None
    assert await canvas.evaluate("canvas => canvas.isConnected"), "drawn into, not anew"


async def test_an_analyst_watches_their_own_work(person: Person, jobs_of_ada: Client) -> None:
    page = await person("analyst")
    await page.goto("/")
    await settled(page)
    id = jobs_of_ada.submit("probe", {"progress": 500, "sleep_seconds": 600})["id"]
    row = page.locator(f"#job-{id}")
    await expect(row.locator("progress")).to_be_visible(timeout=LIVE_MS)
    await expect(page.locator(".verdict")).to_contain_text("running", timeout=LIVE_MS)
    await expect(page.locator("[data-chart]")).to_have_count(0)
    jobs_of_ada.cancel(id)
    await expect(row.locator(".is-cancelled")).to_be_visible(timeout=LIVE_MS)


async def test_without_scripts_the_figures_are_there_and_no_empty_frames(person: Person) -> None:
    page = await person("ops", scripts=False)
    await page.goto("/")
    await expect(page.locator(".verdict")).to_be_visible()
    await expect(page.locator("#chart-wait .plot-box")).to_be_hidden()
    await page.locator("#chart-wait summary").click()
    await expect(page.locator("#chart-wait").get_by_role("table")).to_be_visible()
    await shot(page, "overview-no-scripts")
